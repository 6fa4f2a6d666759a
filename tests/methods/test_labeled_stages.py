"""First stages that draw from the labeled domain alone depend on nothing else: a bench runs them once."""

from __future__ import annotations

import pytest
from toy_context import same_weights, toy_context, toy_method, train

from proud.methods import METHODS, method_class


@pytest.mark.parametrize("name", list(METHODS))
def test_unlabeled_images_their_number_and_later_stages_have_no_effect(name: str) -> None:
    one, two = toy_method(name, toy_context(1)), toy_method(name, toy_context(3), epochs=4)
    assert set(one.stages()[0].pools) == {"labeled"} and one.stages()[1:] != two.stages()[1:]
    for method in (one, two):
        train(method, until=("pretrain", 0))
    assert same_weights(one, two) or method_class(name).LOOKS_AHEAD


@pytest.mark.parametrize("name", [name for name in METHODS if method_class(name).MAIN_ONLY])
def test_settings_of_the_main_stage_have_no_effect(name: str) -> None:
    changed = {"views": 2, "tau_uncertainty": 1.0, "tau_ratio": 1.0, "threshold": 0.1, "alpha": 0.1, "mixup": 1.0}
    changed |= {"udmix": False, "joint_forward": False, "dapp_bn": "running", "pml_views": "all", "center": False}
    changed |= {"spread": 1.0, "classifier": 0.0, "balance": 0.0, "pml_tau": 1.0, "labeled_weight": 0.0}
    changed |= {"ema_epochs": 0.0} | ({} if name.endswith("no-pml") else {"pml": False})
    assert set(method_class(name).MAIN_ONLY) <= set(changed) | {"pml"}
    here = {key: value for key, value in changed.items() if key in method_class(name).MAIN_ONLY}
    one, two = toy_method(name), toy_method(name, **here)
    for method in (one, two):
        train(method, until=("pretrain", 0))
    assert same_weights(one, two)
