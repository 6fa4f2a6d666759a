"""The Python interface: settings, what is refused, and runs that go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proud
from proud import ProUD, UserError
from proud.data.types import UnlabeledDomain
from toy import SHORT, SIDE, as_domain, same_network, toy_images, write_folders


@pytest.mark.filterwarnings("ignore:.*are called")
def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    data = {"labeled": toy_images(0, 2), "unlabeled": [toy_images(1, 2)[0]]}
    short = SHORT | {"pretrain_epochs": 1, "method": "erm", "out": tmp_path / "run"}
    numbers = {"epochs": np.int64(1), "lr": np.float32(0.01), "seed": np.int64(3), "size": np.int64(32)}
    ProUD(**short | numbers).fit(**data)
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert stored["seed"] == 3 and stored["method_config"]["lr"] == float(np.float32(0.01))


@pytest.mark.parametrize(("name", "value"), [("size", "32"), ("size", 32.0), ("val", "0.1"), ("seed", None)])
def test_the_runs_own_settings_of_another_kind_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"--{name} must be of the kind"):
        ProUD(**SHORT | {name: value}).fit(toy_images(0, 2), [toy_images(1, 2)[0]])


def test_resume_and_overwrite(tmp_path: Path) -> None:
    data = {"labeled": toy_images(0, 2), "unlabeled": [toy_images(1, 2)[0]]}
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm", "out": tmp_path / "run"}
    first = ProUD(**short).fit(**data)
    with pytest.raises(UserError, match="holds a run already"):
        ProUD(**short).fit(**data)
    assert same_network(first, ProUD(**short, resume=True).fit(**data))
    assert same_network(first, ProUD(**short, overwrite=True).fit(**data))


def test_threads_are_left_as_they_were() -> None:
    torch.set_num_threads(2)
    try:
        ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 0, "method": "erm"}).fit(
            toy_images(0, 2), [toy_images(1, 1)[0]]
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
def test_wrong_input(labeled: object, unlabeled: object, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ProUD(**{"device": "cpu", "size": SIDE} | settings).fit(labeled, unlabeled)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("threads", "an option of the command `proud train` alone"),
        ("cache", "an option of the command `proud train` alone"),
        ("precision", "an option of the command `proud train` alone"),
        ("test", r"Give it to fit: fit\(test=...\)"),
        ("batchsize", "Did you mean 'batch_size'"),
    ],
)
def test_options_of_the_command_are_not_taken_for_slips(name: str, hint: str) -> None:
    with pytest.raises(UserError, match=f"has no setting '{name}'. .*{hint}") as told:
        ProUD(**{name: 1}).fit(toy_images(0, 2), [toy_images(1, 1)[0]])
    assert ("Did you mean" in str(told.value)) == ("Did you mean" in hint)


def test_what_there_is_can_be_listed() -> None:
    assert set(proud.__all__) <= set(dir(proud))
    program = "import proud, sys; assert {'ProUD', 'load'} <= set(dir(proud)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_same_folder_twice(tmp_path: Path) -> None:
    root = write_folders(tmp_path, {"central": 0}, per_class=1)
    with pytest.raises(UserError, match="given twice"):
        ProUD().fit(root / "central", [root / "central"])


def test_predict_before_fit() -> None:
    with pytest.raises(UserError, match="not fitted yet"):
        ProUD().predict(toy_images(0, 1)[0])


def test_grey_arrays_without_channels_are_images_too() -> None:
    images, labels = toy_images(0, 4)
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1}, method="erm")
    model.fit(labeled=(images[..., 0], labels), unlabeled=[toy_images(1, 4)[0][..., 0]])
    assert model.predict(images[..., 0]).shape == (16,)


@pytest.mark.parametrize(("name", "wrong"), [("epochs", 2.5), ("epochs", "2"), ("lr", "fast"), ("noisemix", 1)])
def test_settings_of_another_kind_are_refused(name: str, wrong: object) -> None:
    images, labels = toy_images(0, 4)
    model = ProUD(**SHORT | {name: wrong}, method="erm")
    with pytest.raises(UserError, match=f"--{name} must be of the kind"):
        model.fit(labeled=(images, labels), unlabeled=[images])


def test_a_finished_run_is_not_another_datas(tmp_path: Path) -> None:
    again = {**SHORT, "epochs": 1, "pretrain_epochs": 1, "method": "erm", "out": tmp_path, "resume": True}
    images, labels = toy_images(0, 4)
    first = ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(1, 4)[0]])
    assert same_network(first, ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(1, 4)[0]]))
    with pytest.raises(UserError, match="not those that the run"):
        ProUD(**again).fit(labeled=(images, labels), unlabeled=[toy_images(2, 4)[0]])
    with pytest.raises(UserError, match="not those that the run"):
        ProUD(**again).fit(labeled=(images, [f"other {label}" for label in labels]), unlabeled=[toy_images(1, 4)[0]])


def test_a_domain_of_ones_own_is_known_again(tmp_path: Path) -> None:
    again = {**SHORT, "epochs": 1, "pretrain_epochs": 1, "out": tmp_path, "resume": True}

    def fit(look: int, known: list[int] | None) -> None:
        images = as_domain("north", *toy_images(look, 4)).images
        told = None if known is None else torch.tensor([*known, *[-1] * (len(images) - len(known))])
        domain = UnlabeledDomain("north", images, tuple(map(str, range(len(images)))), told)
        ProUD(**again).fit(labeled=toy_images(0, 4), unlabeled=[domain])

    fit(1, [0, 1])
    fit(1, [0, 1])
    for look, known in ((2, [0, 1]), (1, [0, 2]), (1, None)):
        with pytest.raises(UserError, match="not those that the run"):
            fit(look, known)
