"""Equal budgets: counted images, and epochs that spend no more than ProUD's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from proud.bench.budget import epochs_within, equal_epochs, images_per_batch_image, total_images
from proud.errors import UserError
from proud.methods import METHODS, method_class, method_config
from proud.methods.base import Sizes, Stage
from proud.methods.erm import ERM

SIZES = Sizes(64, (64, 64))
SETTINGS = {"batch_size": 8, "pretrain_epochs": 3}


@pytest.mark.parametrize(
    ("method", "main"),
    [
        ("proud", 4),
        ("proud-no-pml", 2),
        ("erm", 1),
        ("erm-noisemix", 2),
        ("mean-teacher", 2),
        ("mean-teacher-noisemix", 4),
        ("mixmatch", 3),
        ("mixmatch-noisemix", 6),
        ("fixmatch", 3),
        ("fixmatch-noisemix", 5),
        ("rsc", 1),
        ("rsc-noisemix", 2),
        ("l2d", 4),
        ("dgvgs", 1),
    ],
)
def test_images_are_counted(method: str, main: float) -> None:
    """As the tables of docs/methods/baselines.md say."""
    assert images_per_batch_image(method, SETTINGS)["main"] == main


def test_images_are_counted_over_all_networks() -> None:
    assert images_per_batch_image("eid", SETTINGS) == {"pretrain": 1, "adapt": 5, "teach": 4}


class Several(ERM):
    """Two networks in a list, and two stages that cost differently."""

    def __init__(self, config: Any, context: Any) -> None:
        super().__init__(config, context)
        self.nets = [context.build_net("first"), context.build_net("second")]

    @classmethod
    def stages(cls, config: Any, sizes: Sizes) -> list[Stage]:
        first = super().stages(config, sizes)[0]
        return [first, replace(first, name="pretrain-all")]

    def step(self, stage: Stage, rows: Any, draws: Any, losses: Any) -> dict[str, torch.Tensor]:
        images = torch.zeros(4, 3, 16, 16)
        for net in self.nets if stage.name == "pretrain-all" else self.nets[:1]:
            net(images)
        return {}


def test_images_are_counted_in_lists_of_networks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "several", (f"{__name__}:Several", {}))
    assert images_per_batch_image("several", SETTINGS) == {"pretrain": 1, "pretrain-all": 2}
    monkeypatch.setattr(Several, "step", lambda *_: {})
    with pytest.raises(UserError, match=r"cannot count the images of 'several' \(stage pretrain, pretrain-all\)"):
        images_per_batch_image("several", SETTINGS)


def test_proud_itself_gets_its_own_epochs() -> None:
    assert equal_epochs(SIZES, ["proud"], SETTINGS, 20) == {"proud": 20}


@pytest.mark.parametrize("method", ["erm", "fixmatch", "eid"])
def test_no_method_spends_more_and_one_epoch_more_would(method: str) -> None:
    budget, per_image, config = 50_000.0, images_per_batch_image(method, SETTINGS), method_config(method, **SETTINGS)
    epochs = epochs_within(SIZES, method, SETTINGS, budget)
    cost = [
        total_images(method_class(method), replace(config, epochs=count), SIZES, per_image)
        for count in (epochs, epochs + 1)
    ]
    assert cost[0] <= budget < cost[1]


def test_a_budget_below_the_pretraining_is_refused() -> None:
    settings = {"batch_size": 16, "pretrain_epochs": 20}
    with pytest.raises(UserError, match="too small for 'l2d'"):
        equal_epochs(SIZES, ["l2d"], settings, 1)
