"""Labels that prototypes and classifier find together, against the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from proud import ops


@given(st.integers(0, 2**31 - 1), st.integers(1, 3), st.integers(1, 9), st.sampled_from([0.0, 0.5, 0.9]))
def test_consensus_equals_the_oracle(seed: int, views: int, images: int, share: float) -> None:
    g = torch.Generator().manual_seed(seed)
    distances = 2 * torch.rand(views, images, 4, generator=g, dtype=torch.float64)
    opinion = (4 * torch.randn(images, 4, generator=g, dtype=torch.float64)).softmax(-1)
    present = torch.tensor([True, True, False, True])
    got = ops.consensus(distances, opinion, 0.3, present, share)
    wanted = oracle.consensus(distances.numpy(), opinion.numpy(), 0.3, present.numpy(), share)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-9, atol=1e-12)


def test_without_the_classifier_it_is_the_uncertainty_of_the_paper() -> None:
    g = torch.Generator().manual_seed(0)
    distances = 2 * torch.rand(1, 20, 5, generator=g, dtype=torch.float64)
    present = torch.ones(5, dtype=torch.bool)
    _, uncertainty, _ = ops.consensus(distances, torch.full((20, 5), 0.2), 0.2, present, 0.0)
    torch.testing.assert_close(uncertainty, ops.uncertainty(distances[0], 0.2, present))


def test_opinions_that_disagree_are_uncertain_however_sure_they_are() -> None:
    distances, present = torch.tensor([[[0.0, 2.0], [0.0, 2.0]]]), torch.ones(2, dtype=torch.bool)
    opinion = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    _, uncertainty, _ = ops.consensus(distances, opinion, 0.01, present, 0.5)
    assert uncertainty[0] < 1e-6 and uncertainty[1].item() == pytest.approx(math.log(2))


def test_a_known_label_is_kept_and_certain() -> None:
    g = torch.Generator().manual_seed(3)
    distances, opinion = torch.rand(3, 6, 4, generator=g), torch.rand(6, 4, generator=g).softmax(1)
    known = torch.tensor([-1, 2, -1, 0, -1, -1])
    given = (distances, opinion, 0.2, torch.ones(4, dtype=torch.bool), 0.5)
    free, stated = ops.consensus(*given), ops.consensus(*given, known=known)
    assert stated[0][[1, 3]].tolist() == [2, 0] and stated[1][[1, 3]].tolist() == [0, 0]
    for a, b in zip(free, stated, strict=True):
        assert torch.equal(a[known < 0], b[known < 0])
    torch.testing.assert_close(stated[2][1], (distances.argmin(-1)[:, 1] == 2).float().mean())
