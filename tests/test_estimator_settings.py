"""The Python interface: settings, refused values, and resumed runs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proud
from proud import ProUD, UserError
from proud.config import Options, RunConfig
from proud.data.types import UnlabeledDomain
from toy import SHORT, SIDE, as_domain, same_network, toy_images, write_folders


@pytest.mark.filterwarnings("ignore:.*are classified as")
def test_numpy_numbers_are_accepted(tmp_path: Path) -> None:
    data = {"labeled": toy_images(0, 2), "unlabeled": [toy_images(1, 2)[0]]}
    short = SHORT | {"pretrain_epochs": 1, "method": "erm", "out": tmp_path / "run"}
    numbers = {"epochs": np.int64(1), "lr": np.float32(0.01), "seed": np.int64(3), "size": np.int64(32)}
    ProUD(**short | numbers).fit(**data)
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert stored["seed"] == 3 and stored["method_config"]["lr"] == float(np.float32(0.01))


@pytest.mark.parametrize(
    ("name", "value"), [("size", "32"), ("size", 32.0), ("val", "0.1"), ("seed", 1.5), ("threads", "2")]
)
def test_settings_of_the_run_with_a_wrong_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"--{name} must be of type"):
        ProUD(**SHORT | {name: value}).fit(toy_images(0, 2), unlabeled=[toy_images(1, 2)[0]])


def test_resume_and_overwrite(tmp_path: Path) -> None:
    data = {"labeled": toy_images(0, 2), "unlabeled": [toy_images(1, 2)[0]]}
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm", "out": tmp_path / "run"}
    first = ProUD(**short).fit(**data)
    with pytest.raises(UserError, match="holds a run: continue it with --resume, or replace it with --overwrite"):
        ProUD(**short).fit(**data)
    assert same_network(first, ProUD(**short, resume=True).fit(**data))
    assert same_network(first, ProUD(**short, overwrite=True).fit(**data))


def test_threads_are_left_as_they_were() -> None:
    torch.set_num_threads(2)
    try:
        ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 0, "method": "erm"}).fit(
            toy_images(0, 2), unlabeled=[toy_images(1, 1)[0]]
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "settings", "message"),
    [
        (toy_images(0, 2), [], {}, "No unlabeled domain"),
        (toy_images(0, 2), None, {}, "No unlabeled domain"),
        (toy_images(0, 2)[0], [toy_images(1, 1)[0]], {}, "pair"),
        ("nowhere", [toy_images(1, 1)[0]], {}, "There is no folder nowhere"),
        ((toy_images(0, 2)[0], ["a"]), [toy_images(1, 1)[0]], {}, "8 images but 1 labels"),
        ((toy_images(0, 2)[0] / 255, ["a"] * 8), [toy_images(1, 1)[0]], {}, "must be uint8"),
        ((toy_images(0, 2)[0], ["a"] * 8), [toy_images(1, 1)[0]], {}, "only one class"),
        (toy_images(0, 2), [toy_images(1, 1)[0]], {"pretrain_epoch": 3}, "Did you mean 'pretrain_epochs'"),
        (toy_images(0, 2), [toy_images(1, 1)[0]], {"method": "prod"}, "Did you mean 'proud'"),
        (toy_images(0, 2), [toy_images(1, 1)[0]], {"epochs": 0}, "at least 1"),
    ],
)
def test_invalid_input_is_refused(labeled: object, unlabeled: object, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ProUD(**{"device": "cpu", "size": SIDE} | settings).fit(labeled, unlabeled=unlabeled)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("test", r"Pass it to fit: fit\(test=...\)"),
        ("labels", r"Pass it to fit: fit\(labels=...\)"),
        ("root", "It is an option of the command `proud train`; in Python, pass the images to fit"),
        ("batchsize", "Did you mean 'batch_size'"),
        ("thread", "Did you mean 'threads'"),
        ("frobnicate", "Its settings: epochs, "),
    ],
)
def test_unknown_settings_are_refused(name: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"has no setting '{name}'. {hint}") as error:
        ProUD(**{name: 1}).fit(toy_images(0, 2), unlabeled=[toy_images(1, 1)[0]])
    assert ("Did you mean" in str(error.value)) == ("Did you mean" in hint)


def test_all_fields_of_a_run_are_parameters(tmp_path: Path) -> None:
    """Except those that name the data: `fit` gets the images. In Python, `verbose` takes the place of `quiet`."""
    data = {"data", "root", "labeled", "test", "unlabeled", "labels", "add", "unlabeled_pool", "sites", "quiet"}
    names = {field.name for kind in (RunConfig, Options) for field in fields(kind)} - data
    assert names <= ProUD().get_params().keys() and names <= signature(ProUD).parameters.keys()
    more = {"threads": 1, "precision": "bf16", "cache": "none", "steps": "plain", "eval_every": 2, "square": "pad"}
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm", "out": tmp_path / "run"} | more)
    model.fit(toy_images(0, 2), unlabeled=[toy_images(1, 1)[0]])
    stored = json.loads((tmp_path / "run" / "run.json").read_text())
    assert stored["threads"] == 1
    assert (stored["config"]["precision"], stored["config"]["square"]) == ("bf16", "pad")
    for name, value in {"precision": "fp16", "threads": -1, "eval_every": 0}.items():
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} must be"):
            ProUD(**SHORT | {name: value}).fit(toy_images(0, 2), unlabeled=[toy_images(1, 1)[0]])


def test_the_method_may_be_positional_and_common_settings_are_attributes() -> None:
    model = ProUD("erm", epochs=3)
    assert (model.method, model.epochs, model.lr, model.batch_size) == ("erm", 3, None, None)
    assert model.get_params()["cache"] == "none", "Python users get no files on disk that they did not ask for"


def test_none_is_the_default() -> None:
    given = {"seed": None, "size": None, "threads": None, "epochs": 1, "pretrain_epochs": 1, "device": None}
    model = ProUD(**SHORT | {"method": "erm"} | given).fit(toy_images(0, 2), unlabeled=[toy_images(1, 1)[0]])
    assert (model.model_.config["seed"], model.model_.config["size"]) == (2022, 0)


def test_dir_lists_the_interface_without_importing_torch() -> None:
    assert set(proud.__all__) <= set(dir(proud))
    program = "import proud, sys; assert {'ProUD', 'load'} <= set(dir(proud)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_same_folder_twice_is_refused(tmp_path: Path) -> None:
    root = write_folders(tmp_path, {"central": 0}, per_class=1)
    with pytest.raises(UserError, match="given twice"):
        ProUD().fit(root / "central", unlabeled=[root / "central"])


def test_predict_before_fit_is_refused() -> None:
    with pytest.raises(UserError, match="not fitted yet"):
        ProUD().predict(toy_images(0, 1)[0])


def test_grey_arrays_without_channels_are_images_too() -> None:
    images, labels = toy_images(0, 4)
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1}, method="erm")
    model.fit(labeled=(images[..., 0], labels), unlabeled=[toy_images(1, 4)[0][..., 0]])
    assert model.predict(images[..., 0]).shape == (16,)


@pytest.mark.parametrize(("name", "wrong"), [("epochs", 2.5), ("epochs", "2"), ("lr", "fast"), ("noisemix", 1)])
def test_settings_of_the_method_with_a_wrong_type_are_refused(name: str, wrong: object) -> None:
    images, labels = toy_images(0, 4)
    model = ProUD(**SHORT | {name: wrong}, method="erm")
    with pytest.raises(UserError, match=f"--{name} must be of type"):
        model.fit(labeled=(images, labels), unlabeled=[images])


def test_a_finished_run_is_not_resumed_with_other_data(tmp_path: Path) -> None:
    again = {**SHORT, "epochs": 1, "pretrain_epochs": 1, "method": "erm", "out": tmp_path, "resume": True}
    images, labels = toy_images(0, 4)
    first = ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(1, 4)[0]])
    assert same_network(first, ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(1, 4)[0]]))
    with pytest.raises(UserError, match="images differ from those that the run"):
        ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(2, 4)[0]])
    with pytest.raises(UserError, match="images differ from those that the run"):
        ProUD(**again).fit(labeled=(images, [f"other {label}" for label in labels]), unlabeled=[toy_images(1, 4)[0]])


def test_a_run_with_domain_types_is_resumed_with_the_same_data_only(tmp_path: Path) -> None:
    again = {**SHORT, "epochs": 1, "pretrain_epochs": 1, "out": tmp_path, "resume": True}

    def fit(look: int, known: list[int] | None) -> None:
        images = as_domain("north", *toy_images(look, 4)).images
        added = None if known is None else torch.tensor([*known, *[-1] * (len(images) - len(known))])
        domain = UnlabeledDomain("north", images, tuple(map(str, range(len(images)))), added)
        ProUD(**again).fit(labeled=toy_images(0, 4), unlabeled=[domain])

    fit(1, [0, 1])
    fit(1, [0, 1])
    for look, known in ((2, [0, 1]), (1, [0, 2]), (1, None)):
        with pytest.raises(UserError, match="images differ from those that the run"):
            fit(look, known)


def test_the_default_method_is_the_best_one_everywhere() -> None:
    assert ProUD().method == RunConfig().method == "proud-plus"
