"""What the scripts under benchmarks/ rest on: variants that begin alike, and classes that are thinned as said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from toy_context import toy_context, toy_method

from toy import toy_task

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import class_mix
import explore


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
    for module in (module for module in second.modules().values() if module.state_dict().keys() == net.keys()):
        assert all(torch.equal(value, net[key]) for key, value in module.state_dict().items())
    optimizers = [key for key in state if key.startswith("optimizer")]
    assert optimizers and all(torch.equal(state[key], pretrained[key]) for key in optimizers)
    for value in pretrained.values():
        value.zero_()
    assert all(torch.equal(value, state[key]) for key, value in second.state_dict().items())  # copied, not shared


def test_the_labeled_domain_alone_is_thinned() -> None:
    task = toy_task(per_class=40)
    found = explore.thinned(task, 0.1)
    counts = found.training.labeled.labels.bincount(minlength=4)
    assert 10 * int(counts.min()) == pytest.approx(int(counts.max()), rel=0.3)
    assert counts.max() == task.training.labeled.labels.bincount().max()
    assert found.training.unlabeled is task.training.unlabeled and found.evaluation is task.evaluation


@pytest.mark.parametrize("seed", [7, 8])
def test_thinned_and_even_domains_have_as_many_images(seed: int) -> None:
    thinned, even = class_mix.counts(True, seed), class_mix.counts(False, seed)
    assert max(thinned) == class_mix.COMMONEST and min(thinned) == class_mix.COMMONEST * class_mix.RAREST
    assert len(set(even)) == 1 and sum(even) == pytest.approx(sum(thinned), rel=0.01)
