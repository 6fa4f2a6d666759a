"""Labels that views and classifier agree on, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from proud import ops


@given(st.integers(0, 2**31 - 1), st.integers(1, 3), st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0]))
def test_consensus_equals_the_oracle(seed: int, views: int, images: int, balance: float) -> None:
    g = torch.Generator().manual_seed(seed)
    classes = 4
    distances = 2 * torch.rand(views, images, classes, generator=g, dtype=torch.float64)
    probs = (4 * torch.randn(views, images, classes, generator=g, dtype=torch.float64)).softmax(-1)
    present = torch.tensor([True, True, False, True])
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    got = ops.consensus(distances, probs, 0.3, present, classifier=0.7, balance=balance, prior=prior)
    wanted = oracle.consensus(distances.numpy(), probs.numpy(), 0.3, present.numpy(), 0.7, balance, prior.numpy())
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-12)
    assert not (got[0] == 2).any()  # nobody is given an absent class


def test_without_the_classifier_it_is_the_uncertainty_of_the_paper() -> None:
    g = torch.Generator().manual_seed(0)
    distances = 2 * torch.rand(3, 20, 5, generator=g, dtype=torch.float64)
    probs = torch.rand(3, 20, 5, generator=g, dtype=torch.float64)
    present = torch.ones(5, dtype=torch.bool)
    _, uncertainty, _ = ops.consensus(distances[:1], probs[:1], 0.2, present, classifier=0.0)
    torch.testing.assert_close(uncertainty, ops.uncertainty(distances[0], 0.2, present))


def test_a_known_label_is_kept_and_certain() -> None:
    g = torch.Generator().manual_seed(3)
    distances, probs = torch.rand(3, 6, 4, generator=g), torch.rand(3, 6, 4, generator=g)
    known = torch.tensor([-1, 2, -1, 0, -1, -1])
    given = {"tau": 0.2, "present": torch.ones(4, dtype=torch.bool), "classifier": 0.5}
    free, stated = ops.consensus(distances, probs, **given), ops.consensus(distances, probs, known=known, **given)
    assert stated[0][[1, 3]].tolist() == [2, 0] and stated[1][[1, 3]].tolist() == [0, 0]
    for a, b in zip(free, stated, strict=True):
        assert torch.equal(a[known < 0], b[known < 0])
    views = (-distances / 0.2 + 0.5 * probs.log()).argmax(-1)
    torch.testing.assert_close(stated[2][1], (views[:, 1] == 2).float().mean())


def test_balance_holds_back_a_class_that_comes_up_too_often() -> None:
    g = torch.Generator().manual_seed(1)
    distances = torch.rand(1, 400, 3, generator=g)
    distances[..., 0] -= 0.1  # everybody seems nearer to class 0
    probs, present, prior = torch.full((1, 400, 3), 1 / 3), torch.ones(3, dtype=torch.bool), torch.full((3,), 1 / 3)
    shares = [
        (ops.consensus(distances, probs, 0.1, present, classifier=0.0, balance=b, prior=prior)[0] == 0).float().mean()
        for b in (0.0, 0.5, 1.0)
    ]
    assert shares[0] > shares[1] > shares[2] == pytest.approx(1 / 3, abs=0.05)


def test_parts_of_a_domain_agree_with_the_whole() -> None:
    """Processes hold parts of the images and add their sums."""
    g = torch.Generator().manual_seed(2)
    distances, probs = torch.rand(2, 12, 3, generator=g), torch.rand(2, 12, 3, generator=g)
    common = {"tau": 0.2, "present": torch.ones(3, dtype=torch.bool), "classifier": 0.5, "balance": 0.5}
    prior = torch.tensor([0.5, 0.3, 0.2])
    whole = ops.consensus(distances, probs, prior=prior, **common)
    sums: list[torch.Tensor] = []
    ops.consensus(distances, probs, prior=prior, reduce=lambda total: sums.append(total) or total, **common)
    known = iter(sums)
    part = ops.consensus(distances[:, :5], probs[:, :5], prior=prior, reduce=lambda total: next(known), **common)
    for a, b in zip(part, whole, strict=True):
        torch.testing.assert_close(a, b[:5])


@pytest.mark.parametrize("balance", [0.25, 1.0])
def test_known_labels_count_in_the_balance(balance: float) -> None:
    """All of a class are known: nothing is left that the others must make up for."""
    distances = torch.tensor([0.0, 0.01]).expand(1, 100, 2)
    known = torch.cat([torch.full((50,), 1), torch.full((50,), -1)])
    probs, present, prior = torch.full((1, 100, 2), 0.5), torch.ones(2, dtype=torch.bool), torch.full((2,), 0.5)
    labels, uncertainty, _ = ops.consensus(
        distances, probs, 0.1, present, classifier=0.5, balance=balance, prior=prior, known=known
    )
    assert labels.tolist() == [1] * 50 + [0] * 50 and uncertainty[:50].tolist() == [0] * 50
