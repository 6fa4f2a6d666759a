"""Cross-validation: every labeled image is held out once, and few labels give a usable threshold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import train as train_folder
from proud import ProUD
from proud.config import Options, RunConfig
from proud.data.types import LabeledDomain
from proud.errors import UserError
from proud.methods.base import Stage
from proud.model.answers import AnswerOptions, guarantee
from proud.model.load import load_model
from proud.training import run as runs
from proud.training.checks import other_folds
from proud.training.folds import check_can_fold, fold_of, fold_tasks, labeled_images
from proud.training.forecast import Forecast, StageWork
from proud.training.run import train
from proud.trust.fitted import promises
from proud.trust.selective import fewest_answers, lowest_risk
from toy import CLASSES, SHORT, toy_images, toy_run, toy_settings, toy_task, write_folders


def domain(labels: list[int], same: tuple[int, int] | None = None) -> LabeledDomain:
    images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].repeat(1, 3, 2, 2)
    if same:
        images[same[1]] = images[same[0]]
    return LabeledDomain("central", images, torch.tensor(labels), CLASSES)


def test_folds_are_stratified_and_of_equal_size() -> None:
    place = fold_of(domain([0] * 10 + [1] * 5 + [2] * 5), 5, seed=1)
    assert place.bincount().tolist() == [4, 4, 4, 4, 4]
    assert place[:10].bincount().tolist() == [2] * 5
    assert not place.equal(fold_of(domain([0] * 10 + [1] * 5 + [2] * 5), 5, seed=2))


def test_equal_images_share_a_fold_and_a_class_never_vanishes() -> None:
    place = fold_of(domain([0] * 6 + [1] * 6 + [2], same=(0, 5)), 3, seed=1)
    assert place[0] == place[5] >= 0
    assert place[12] == -1  # the only image of its class


def test_each_image_is_held_out_once() -> None:
    task = toy_task(per_class=6)
    whole = len(task.training.labeled) + len(task.evaluation.validation or ())
    held = []
    for fold in fold_tasks(task, 4, seed=3):
        assert fold.evaluation.validation is not None and fold.evaluation.test is None and not fold.evaluation.audits
        assert len(fold.training.labeled) + len(fold.evaluation.validation) == whole
        assert set(fold.training.labeled.labels.tolist()) == set(range(4))
        held += [image.numpy().tobytes() for image in fold.evaluation.validation.images]
    assert len(held) == len(set(held)) == whole


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folds") / "run"
    task = toy_task(per_class=12)
    options = Options(out=str(folder), device="cpu", threads=1, quiet=True, folds=3, eval_every=100)
    train(toy_run("erm"), toy_settings("erm", epochs=2, pretrain_epochs=6), options, data=task)
    return folder


def test_groups_share_a_fold_and_leave_every_class_to_train_on() -> None:
    labels, groups = [0, 0, 1, 1, 0, 1, 2, 2], ("p", "p", "p", "q", "q", "", "r", "r")
    whole = replace(domain(labels), groups=groups)
    for seed in range(10):
        place = fold_of(whole, 3, seed)
        assert len(place[:3].unique()) == len(place[3:5].unique()) == 1
        assert (place[6:] == -1).all()  # the only group of its class
        for fold in range(3):
            assert set(whole.labels[place != fold].tolist()) == {0, 1, 2}


def test_all_labeled_images_calibrate_the_model(crossed: Path) -> None:
    stored = json.loads((crossed / "model" / "model.json").read_text())["trust"]
    assert (stored["images"], stored["folds"]) == (48, 3)
    assert not (crossed / "folds").exists()
    model = load_model(crossed, "cpu")
    assert model.trust is not None and model.trust.threshold(0.1) is not None  # the five validation images promise 45 %
    text = guarantee(model.trust, AnswerOptions(risk=0.1))
    assert "48 labeled images, each judged by one of 3 networks trained without it" in text
    assert "at most about 10 % of the other answers are wrong there, if the model is as good as the networks" in text


def test_a_stop_between_folds_keeps_those_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, trained, whole = toy_task(per_class=6), [], runs.train_in_folder

    def counted(run: runs.Run, *more: object) -> object:
        if run.folder.path.name == "2" and "stopped" not in trained:
            trained.append("stopped")
            raise runs.Stopped
        trained.append(run.folder.path.name)
        return whole(run, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "train_in_folder", counted)
    settings = toy_settings("erm", epochs=1, pretrain_epochs=1)
    options = Options(out=str(tmp_path / "run"), device="cpu", threads=1, quiet=True, folds=2)
    with pytest.raises(runs.Stopped):
        train(toy_run("erm"), settings, options, data=task)
    assert (tmp_path / "run" / "folds" / "1" / "result.json").is_file()
    again = Options(out=str(tmp_path / "run"), device="cpu", threads=1, quiet=True, folds=2, resume=True)
    assert train(toy_run("erm"), settings, again, data=task)["folder"] == str(tmp_path / "run")
    assert trained == ["run", "1", "stopped", "run", "2"]


def test_folds_of_another_number_are_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they hold out differs: a network would judge images that it was trained on."""
    data = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=6)
    flags = ("--epochs", "1", "--pretrain-epochs", "1", "--method", "erm")
    remove = runs.remove_folds

    def stop(folder: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "remove_folds", stop)  # all folds are done, and kept
    assert train_folder(data, tmp_path / "x", *flags, "--folds", "4") != 0
    monkeypatch.setattr(runs, "remove_folds", remove)
    assert train_folder(data, tmp_path / "x", *flags, "--folds", "2", "--resume") == 0
    trust = load_model(tmp_path / "x", "cpu").trust
    assert trust is not None and (trust.folds, trust.images) == (2, 24)
    assert not (tmp_path / "x" / "folds").exists()


def test_a_finished_run_says_that_it_gets_no_other_folds(crossed: Path) -> None:
    folds = load_model(crossed, "cpu").trust.folds
    assert other_folds(crossed, folds) == other_folds(crossed, 0) == ""
    assert f"was calibrated with --folds {folds}: --folds 7 needs a run in another --out" in other_folds(crossed, 7)


def test_folds_that_hold_nothing_out_are_refused_before_training() -> None:
    task = toy_task(per_class=4)
    whole = labeled_images(task)
    check_can_fold(task, 2, seed=1)
    one = replace(whole, groups=("slide",) * len(whole))
    evaluation = replace(task.evaluation, validation=None)
    alone = replace(task, training=replace(task.training, labeled=one), evaluation=evaluation)
    with pytest.raises(UserError, match=r"--folds 2 can hold out no image of .*: Leave --folds out|Leave --folds out"):
        check_can_fold(alone, 2, seed=1)


def test_folds_train_the_network_that_suits_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of 80 pixels, seen at 32: what is read looks small, but the files are not."""
    random = np.random.default_rng(0)
    for site, label, number in product(("central", "north"), "ab", range(6)):
        path = tmp_path / "data" / site / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (80, 80, 3), dtype=np.uint8)).save(path)
    names, load = [], runs.load

    def loading(*given: Any, **more: Any) -> Any:
        found = load(*given, **more)
        names.append(found[1].name)
        return found

    monkeypatch.setattr(runs, "load", loading)
    monkeypatch.setattr("proud.config.DEFAULT_BACKBONE", "test_resnet")
    config = RunConfig(
        method="erm", data=str(tmp_path / "data"), labeled="central", test="none", size=32, weights="none"
    )
    options = Options(out=str(tmp_path / "run"), device="cpu", threads=1, quiet=True, folds=2)
    train(config, toy_settings("erm", epochs=1, pretrain_epochs=1), options)
    assert names == ["test_resnet"] * 3


def test_one_fold_is_refused() -> None:
    with pytest.raises(UserError, match="--folds 1 holds out nothing"):
        train(toy_run("erm"), toy_settings("erm"), Options(folds=1, device="cpu", quiet=True), data=toy_task())


def test_a_network_that_has_seen_the_labels_cannot_judge_folds(crossed: Path) -> None:
    config = replace(toy_run("erm"), start_from=str(crossed))
    with pytest.raises(UserError, match="--folds and --from exclude each other"):
        train(config, toy_settings("erm"), Options(folds=2, device="cpu", quiet=True), data=toy_task())


def test_what_few_validation_images_can_promise() -> None:
    assert fewest_answers(0.05) == 59 and lowest_risk(59) <= 0.05 < lowest_risk(58)
    assert promises(59) == ""
    ten = promises(10)
    assert "With 10 validation images, confidence is not calibrated (that needs 30)" in ten
    assert "at most 91 % coverage" in ten and "a risk of 26 % (5 % needs 59 images" in ten and "--folds 5" in ten
    assert "calibrated" not in promises(40)
    assert promises(0).startswith("No validation images")


def test_training_says_so_at_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=4)
    short = ("--method", "erm", "--epochs", "1", "--pretrain-epochs", "1")
    assert train_folder(root, tmp_path / "run", *short, quiet=False) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.index("With 4 validation images") < output.index("pretrain 1/1")


def test_few_labels_of_new_images_are_covered(crossed: Path) -> None:
    """Not a proof: the toy task is easy. `benchmarks/few_labels.py` measures it on digits."""
    model = load_model(crossed, "cpu")
    images, labels = toy_images(0, 50, seed=11)
    table = model.predict_table(images, coverage=0.9, risk=0.1)
    covered = np.mean([label in inside for label, inside in zip(labels, table["set"], strict=True)])
    answered = ~table["abstain"]
    assert covered >= 0.85
    assert answered.mean() > 0.3 and (table["label"] != labels)[answered].mean() <= 0.1


def test_python_says_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1}, method="erm", verbose=True)
    model.fit(labeled=toy_images(0, 4), unlabeled=[toy_images(1, 2)[0]])
    output = " ".join(capsys.readouterr().out.split())
    assert output.index("With 4 validation images") < output.index("pretrain 1/1")


def test_the_estimate_of_time_includes_the_folds() -> None:
    stage = Stage("main", 1, 4, {"labeled": 8})
    whole = [Forecast(print, [StageWork(stage, 1.0, 0.0, 1.0)], None, 0.0, "", n).total for n in (1, 6)]
    assert whole == [4, 24]
