"""Few images, and sites of unequal size: the length of an epoch, and what its batches are drawn from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_context import toy_method, train

from proud.methods import METHODS, method_class, method_config
from proud.methods.base import Sizes
from proud.randomness import Randomness
from toy import as_domain, task_from, toy_images

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from thin import thinned

SMALL = Sizes(120, (300, 97))


@pytest.mark.parametrize("name", METHODS)
def test_every_epoch_has_the_least_number_of_steps(name: str) -> None:
    usual, longer, short = (
        method_class(name).stages(method_config(name, batch_size=128, **more), SMALL)
        for more in ({}, {"least_steps": 30}, {"least_steps": 2})
    )
    assert usual[0].steps == 1 and usual[-1].steps == 4
    assert all(stage.steps == 30 for stage in longer)
    assert short[0].steps == 2 and short[-1].steps == 4
    assert [stage.epochs for stage in usual] == [stage.epochs for stage in longer]


def test_even_rows_have_as_many_of_each_site_in_every_batch() -> None:
    random = Randomness(1, torch.device("cpu"))
    rows = random.even_rows("unlabeled", [300, 20, 97], 9, 32)
    assert rows.shape == (9, 32)
    site = torch.bucketize(rows, torch.tensor([300, 320]), right=True)
    for batch in site:
        assert batch.bincount(minlength=3).tolist() in ([11, 11, 10], [11, 10, 11], [10, 11, 11])
    small = rows[site == 1]  # 96 draws of 20 images
    assert small.bincount(minlength=320)[300:].tolist() == pytest.approx([4.8] * 20, abs=0.9)
    assert small[:20].sort().values.tolist() == list(range(300, 320))
    assert not torch.equal(rows[0], Randomness(2, torch.device("cpu")).even_rows("unlabeled", [300, 20, 97], 9, 32)[0])


def test_fewer_slots_than_sites() -> None:
    rows = Randomness(1, torch.device("cpu")).even_rows("unlabeled", [5, 5, 5], 1, 2)
    assert (rows // 5).tolist() == [[0, 1]]


@pytest.mark.parametrize("name", ["proud", "proud-plus", "fixmatch", "eid"])
def test_only_the_batches_of_unlabeled_images_are_even(name: str) -> None:
    usual, even = toy_method(name), toy_method(name, even_sites=True)
    for stage in usual.stage_list():
        one, other = (method.rows(stage, Randomness(1, torch.device("cpu"))) for method in (usual, even))
        assert [pool for pool in one if not torch.equal(one[pool], other[pool])] == ["unlabeled"] * (
            "unlabeled" in stage.pools
        )
    assert all(np.isfinite(float(epoch["loss"])) for epoch in train(even))


def test_a_thinned_site_loses_images_and_nothing_else() -> None:
    hidden = [as_domain(f"hidden {t}", *toy_images(t, 10)) for t in (1, 2)]
    task = task_from(toy_images(0, 10), hidden, size=16)
    less = thinned(task, "hidden 2", 0.25, 7)
    assert [len(domain) for domain in less.training.unlabeled] == [40, 10]
    (whole, kept), truth = task.training.unlabeled, less.evaluation.audits["hidden 2"]
    assert less.training.unlabeled[0] is whole
    rows = [kept.ids.index(name) for name in less.training.unlabeled[1].ids]
    assert torch.equal(less.training.unlabeled[1].images, kept.images[rows])
    assert truth.labels.tolist() == task.evaluation.audits["hidden 2"].labels[rows].tolist()
    labeled = thinned(task, "labeled", 0.5, 7).training.labeled
    assert len(labeled) == len(labeled.labels) == round(len(task.training.labeled) / 2)
    with pytest.raises(ValueError, match="test is not trained on here, but labeled, hidden 1"):
        thinned(task, "test", 0.5, 7)
