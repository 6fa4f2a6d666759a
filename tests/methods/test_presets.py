"""Defaults by the kind of images."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import get_args

import pytest
import torch
from toy_context import toy_context, toy_method

from proud import ProUD
from proud.cli.flags.train import parse_train
from proud.config import Preset, RunConfig
from proud.methods import METHODS, method_class, method_config
from proud.methods.base import Sizes
from proud.methods.presets import KINDS, preset


def settings(method: str, data: str = "wbc", **more: object) -> dict[str, object]:
    return asdict(method_config(method, **preset(data, "auto", method, **more)))


def test_every_kind_of_images_has_a_preset() -> None:
    assert set(KINDS) == set(get_args(Preset))


@pytest.mark.parametrize("method", METHODS)
def test_a_kind_changes_the_augmentation_and_nothing_else(method: str) -> None:
    for data in ("wbc", "pacs", "digits-dg"):
        usual = settings(method, data)
        for kind, values in KINDS.items():
            found = settings(method, data, kind=kind)
            assert found == usual | {name: value for name, value in values.items() if name in usual}
    assert settings("proud-plus", kind="microscopy")["outline"] == 0
    assert not settings("proud-plus", kind="microscopy")["strong"]


def test_the_command_takes_the_kind_and_single_settings_count_more() -> None:
    words = ["--data", "embedded", "--labeled", "pen", "--preset", "microscopy"]
    arguments = parse_train([*words, "--hue", "0.2"])
    assert (arguments.settings.turn, arguments.settings.gray, arguments.settings.hue) == (True, 0, 0.2)
    assert not parse_train(words[:-2]).settings.turn


def test_epochs_of_few_small_images_are_not_a_few_steps() -> None:
    small = method_config("proud-plus", **preset("mine", "digits", "proud-plus"))
    assert {stage.steps for stage in method_class("proud-plus").stages(small, Sizes(100, (100, 100)))} == {10}
    assert settings("proud-plus", "mine")["least_steps"] == settings("proud-plus", "digits-dg")["least_steps"] == 1


def test_python_takes_the_kind() -> None:
    model = ProUD(preset="microscopy", hue=0.2)
    found = model._settings(replace(RunConfig(), preset="microscopy", model="digits"), on_cpu=True)
    assert (found.turn, found.gray, found.hue) == (True, 0, 0.2)


def test_views_follow_the_settings() -> None:
    """Without jitter of position, every view of an image is one of its eight positions; without gray, none is grey."""
    context = toy_context()
    image = torch.randint(0, 256, (1, 3, 18, 18), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    uniform = torch.full((64, 9), 0.5)
    uniform[:, 0] = 1  # no translation
    uniform[:, 3] = (torch.arange(64) + 0.5) / 64
    uniform[:, 8] = 0.1  # grey at the usual share of 0.2
    views = {
        turn: toy_method("erm", context, flip=True, turn=turn, gray=0.0).views.simple(
            image.expand(64, -1, -1, -1), uniform
        )
        for turn in (False, True)
    }
    assert len(views[False].unique(dim=0)) == 2 and len(views[True].unique(dim=0)) == 8
    upright = views[False][-1]
    eight = [part.rot90(k, (1, 2)) for k in range(4) for part in (upright, upright.flip(-1))]
    assert all(any(torch.allclose(view, one, atol=1e-5) for one in eight) for view in views[True])
    grey = toy_method("erm", context, gray=0.2).views.simple(image, uniform[:1])
    spread = (grey * torch.tensor(context.std).view(3, 1, 1) + torch.tensor(context.mean).view(3, 1, 1)).std(1)
    assert float(spread.max()) < 1e-5
    hues = [toy_method("erm", context, hue=hue, gray=0.0).views.simple(image, uniform[:1] * 0.2) for hue in (0.0, 0.1)]
    assert not torch.allclose(*hues)
