"""What benchmarks/explore.py rests on: variants that start from a shared pretraining."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from toy_context import toy_context, toy_method

from proud.methods.proud_plus import ProUDPlusConfig

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import explore
import recipe


@pytest.mark.parametrize("name", ["proud", "proud-plus", "mean-teacher"])
def test_variants_begin_where_a_pretraining_ended(name: str) -> None:
    first, second = (toy_method(name, toy_context()) for _ in range(2))
    with torch.no_grad():
        for number, value in enumerate(first.state_dict().values()):
            if value.is_floating_point():
                value.fill_(number + 1.0)
    pretrained = {key: value.clone() for key, value in first.state_dict().items()}
    explore.begin(second, pretrained)
    state = {key: value.clone() for key, value in second.state_dict().items()}
    net = first.net.state_dict()
    networks = [module for module in second.modules().values() if module.state_dict().keys() == net.keys()]
    assert len(networks) == (1 if name == "proud" else 2)  # the others average their weights
    for module in networks:
        assert all(torch.equal(value, net[key]) for key, value in module.state_dict().items())
    optimizers = [key for key in state if key.startswith("optimizer")]
    assert optimizers and all(torch.equal(state[key], pretrained[key]) for key in optimizers)
    for value in pretrained.values():
        value.zero_()
    assert all(torch.equal(value, state[key]) for key, value in second.state_dict().items())  # copied, not shared


def test_variants_share_a_pretraining_that_does_not_depend_on_their_settings() -> None:
    keys = [
        explore.pretraining_key(toy_method("proud-plus", **settings))
        for settings in ({}, {"alpha": 0.3, "epochs": 7}, {"warp": 0.1})
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("data", ["pacs", "digits-dg"])
def test_each_part_of_the_recipe_is_switched_on_its_own(data: str) -> None:
    whole, *switched = recipe.variants("minus", data)
    assert len(switched) == len(recipe.PARTS)
    settings = {field.name for field in fields(ProUDPlusConfig)}
    for variant, (off, on) in zip(switched, recipe.PARTS.values(), strict=True):
        changed = {key: value for key, value in variant.items() if key not in whole}
        assert changed in (off, on)
        assert changed.keys() <= settings
