"""`proud train --from RUN --add SITE`: a model of some sites learns from one more, without pretraining."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import train
from proud import ProUD
from proud.cli import main as cli
from proud.cli.flags.train import parse_train
from proud.errors import UserError
from proud.machine import Stopped
from proud.methods import METHODS, method_class, method_config
from proud.methods.context import make_context
from proud.model.load import load_model
from proud.training import loop
from proud.training.start import read_start
from toy import SHORT, SIDE, toy_images, toy_run, toy_task, write_folders

ONE = ("--epochs", "1", "--batch-size", "16", "--lr", "0.02", "--device", "cpu", "--threads", "1", "--quiet")


@pytest.fixture(scope="module")
def new_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folders(tmp_path_factory.mktemp("elsewhere"), {"west": 3}, per_class=6) / "west"


def start(run: Path, out: Path, *more: object) -> int:
    return cli.run(["train", "--from", str(run), "--out", str(out), *map(str, more), *ONE])


def described(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


def test_a_site_is_added_to_those_of_the_run(trained: Path, new_site: Path, tmp_path: Path) -> None:
    assert start(trained, tmp_path / "more", "--add", new_site) == 0
    before, after = described(trained), described(tmp_path / "more")
    assert {name: each["role"] for name, each in after["task"]["domains"].items()} == {
        "central": "labeled",
        "north": "unlabeled",
        "south": "unlabeled",
        "west": "unlabeled",
    }
    assert after["config"]["method_config"]["pretrain_epochs"] == 0
    assert after["config"]["add"] == [str(new_site)]
    assert after["model"] == before["model"]
    origin = after["started_from"]
    assert origin["folder"] == str(trained) and origin["config"]["labeled"] == "central"
    assert origin["weights"] == read_start(toy_run(start_from=str(trained))).digest
    # and once more: the sites add up, in whatever order
    assert start(tmp_path / "more", tmp_path / "again") == 0
    assert described(tmp_path / "again")["task"]["domains"].keys() == after["task"]["domains"].keys()


def test_a_site_that_the_run_has_already_is_a_warning(trained: Path, data: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="--add north: the run has this unlabeled site already"):
        assert start(trained, tmp_path / "same", "--add", "north") == 0
    assert set(described(tmp_path / "same")["task"]["domains"]) == {"central", "north", "south"}
    with pytest.warns(UserWarning, match="--add .*north: the run has this unlabeled site already"):
        assert start(trained, tmp_path / "again", "--add", data / "north") == 0


def test_an_inherited_site_is_no_warning(data: Path, tmp_path: Path) -> None:
    """--add south was given to the run that is started from, not now."""
    assert train(data, tmp_path / "first", "--unlabeled", "north", "--epochs", "1", "--pretrain-epochs", "1") == 0
    assert start(tmp_path / "first", tmp_path / "second", "--add", "south") == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert start(tmp_path / "second", tmp_path / "third") == 0
    assert not [str(each.message) for each in caught if "--add" in str(each.message)]
    assert set(described(tmp_path / "third")["task"]["domains"]) == {"central", "north", "south"}
    with pytest.warns(UserWarning, match="--add south: the run has this unlabeled site already"):
        assert start(tmp_path / "second", tmp_path / "fourth", "--add", "south") == 0


def test_a_folder_that_is_added_in_two_spellings_is_one_site(trained: Path, new_site: Path, tmp_path: Path) -> None:
    twice = ("--add", new_site, f"{new_site}/../west")
    assert start(trained, tmp_path / "once", *twice) == 0
    assert set(described(tmp_path / "once")["task"]["domains"]) == {"central", "north", "south", "west"}


@pytest.mark.parametrize("words", [("--add", "a", "--add", "b"), ("--unlabeled=north", "--unlabeled", "south")])
def test_a_flag_for_several_sites_that_is_given_twice_is_refused(words: tuple[str, ...], trained: Path) -> None:
    with pytest.raises(UserError, match=r"is given twice: name all sites after one, as in --\w+ FIRST SECOND"):
        parse_train(["--from", str(trained), *words])


def path_in(folder: Path, data: Path, path: Path) -> Path:
    """Of another image beside the copy of this one."""
    return (folder / path.relative_to(data)).with_stem(f"{path.stem}-more")


def held_out(run: Path) -> list[str]:
    return described(run)["task"]["held_out"]


def test_images_that_the_model_was_trained_on_do_not_validate(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(trained, tmp_path / "same", "--seed", "5", "--val", "0.4") == 0
    assert held_out(tmp_path / "same") == held_out(trained)
    more = tmp_path / "data"
    shutil.copytree(data, more)
    for path in sorted((data / "central").rglob("*.png")):
        Image.open(path).point(lambda value: 255 - value).save(path_in(more, data, path))
    assert start(trained, tmp_path / "more", "--data", more) == 0
    assert held_out(tmp_path / "more") == held_out(trained)
    central = described(tmp_path / "more")["task"]["domains"]["central"]
    assert central["images"] > described(trained)["task"]["domains"]["central"]["images"]
    assert "trained on" not in capsys.readouterr().out


def test_where_it_was_trained_on_them_training_says_so(trained: Path, data: Path, tmp_path: Path) -> None:
    old = shutil.copytree(trained, tmp_path / "old")
    with pytest.warns(UserWarning, match="was trained on the images of south, or a model before it was"):
        assert start(old, tmp_path / "tested", "--test", "south", "--unlabeled", "north") == 0
    with pytest.warns(UserWarning, match="was trained on the images of south, or a model before it was"):
        assert start(tmp_path / "tested", tmp_path / "chain", "--test", "south", "--unlabeled", "north") == 0
    everything = tmp_path / "everything"
    assert start(old, everything, "--val", "0") == 0
    with pytest.warns(UserWarning, match="may have been trained on . of the . validation images of central"):
        assert start(everything, tmp_path / "late", "--val", "0.2") == 0
    model = shutil.copytree(trained / "model", tmp_path / "model")
    fitted = ProUD(start_from=model, **SHORT | {"pretrain_epochs": 0, "epochs": 1, "lr": 0.01, "size": SIDE})
    with pytest.warns(UserWarning, match="It is not known which images"):
        fitted.fit(data / "central", unlabeled=[data / "north"])


def test_the_model_that_a_run_starts_from_is_not_replaced(trained: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trained, tmp_path / "copy")
    (tmp_path / "link").symlink_to(copy)
    for out in (copy, tmp_path / "link", tmp_path / "x" / ".." / "copy"):
        with pytest.raises(UserError, match="is the run that this one starts from: choose another --out"):
            start(copy, out, "--overwrite")
    with pytest.raises(UserError, match="is the run that this one starts from"):
        start(copy / "model", copy, "--overwrite")
    assert load_model(copy, "cpu").classes


def test_defaults_are_those_of_the_run_and_flags_change_them(trained: Path, data: Path) -> None:
    run, settings, *_ = parse_train(["--from", str(trained)])
    assert (run.data, run.labeled, run.unlabeled) == (str(data), "central", ("north", "south"))
    assert (run.model, run.size, run.method, settings.pretrain_epochs) == ("digits", SIDE, "proud", 0)
    usual = parse_train(["--data", str(data), "--labeled", "central", "--method", run.method]).settings
    assert settings.epochs == usual.epochs // 4
    run, settings, *_ = parse_train(
        ["--from", str(trained), "--method", "erm", "--unlabeled", "south", "--pretrain-epochs", "2"]
    )
    assert (run.method, run.unlabeled, settings.pretrain_epochs) == ("erm", ("south",), 2)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_starts_with_the_answers_of_the_model_or_refuses(name: str, trained: Path) -> None:
    if not method_class(name).starts_from_model:
        with pytest.raises(UserError, match="two networks that must differ"):
            read_start(toy_run(name, start_from=str(trained)))
        return
    found = read_start(toy_run(name, start_from=str(trained)))
    data, cpu = toy_task(per_class=1, test=None).training, torch.device("cpu")
    context = make_context(data, found.spec, cpu, weights="none", seed=1, precision="fp32", start=found.state)
    method = method_class(name)(method_config(name, batch_size=12, flip=False), context)
    for net in [module for module in method.modules().values() if hasattr(module, "head")]:
        state = net.state_dict()
        assert all(torch.equal(state[key], value) for key, value in found.state.items())


def test_an_interrupted_run_resumes_to_the_same_weights(
    trained: Path, new_site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--add", new_site, "--epochs", "2")
    assert start(trained, tmp_path / "whole", *flags) == 0
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    finish = loop.Loop._finish

    def stop(self: loop.Loop, *arguments: object) -> None:
        finish(self, *arguments)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_finish", stop)
        assert start(trained, tmp_path / "parts", *flags) == 130
    assert start(trained, tmp_path / "parts", *flags, "--resume") == 0
    one, other = (load_model(tmp_path / name, "cpu").net.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_does_not_fit_is_refused_and_nothing_written(
    trained: Path, data: Path, new_site: Path, tmp_path: Path
) -> None:
    for flags, text in [
        (["--model", "resnet10t"], "--model resnet10t differs from the network of .*, digits"),
        (["--size", "32"], "--size 32 differs from that of the model in .*, 16"),
        (["--weights", str(trained / "run.json")], "--weights and --from exclude each other"),
        (["--method", "eid"], "eid trains two networks"),
        (["--add", "nowhere"], "--add nowhere: no such folder, and no domain of that name"),
        (["--add", "central"], "'central' is the labeled domain and cannot be an unlabeled one too"),
    ]:
        with pytest.raises(UserError, match=text):
            start(trained, tmp_path / "out", *flags)
    with pytest.raises(UserError, match="does not hold a run"):
        start(data, tmp_path / "out")
    other = shutil.copytree(data, tmp_path / "data")
    (other / "central" / "plain").rename(other / "central" / "dots")
    with pytest.raises(UserError, match=r"only in the labeled domain: dots; only in the model: plain"):
        start(trained, tmp_path / "out", "--data", other)
    assert not (tmp_path / "out").exists()


def test_a_changed_model_is_not_resumed_from(
    trained: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: loop.Loop) -> None:
        raise Stopped

    origin = shutil.copytree(trained, tmp_path / "origin")
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "run", stop)
        assert start(origin, tmp_path / "out") == 130
    shutil.rmtree(origin)
    assert train(data, origin, "--epochs", "1") == 0
    with pytest.raises(UserError, match="is not the one that this run started from"):
        start(origin, tmp_path / "out", "--resume")


def test_in_python(trained: Path) -> None:
    central, north = toy_images(0, 6), toy_images(1, 6)[0]
    settings = {name: value for name, value in SHORT.items() if name not in ("size", "pretrain_epochs")}
    model = ProUD(start_from=str(trained), **settings | {"epochs": 1}).fit(labeled=central, unlabeled=[north])
    assert model.model_.spec.size == SIDE and [row["stage"] for row in model.history_] == ["main"]
    before = load_model(trained, "cpu").predict(north)
    assert np.mean(model.predict(north) == before) > 0.5
    with pytest.raises(UserError, match="The classes differ"):
        renamed = np.array([f"{label}!" for label in central[1]])
        ProUD(start_from=str(trained), **settings).fit(labeled=(central[0], renamed), unlabeled=[north])
