"""Prototypes of a site, and T3A, against the oracle."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from proud import ops


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 2**31 - 2), st.floats(0, 10))
def test_anchored_prototypes_equal_the_oracle(seed: int, strength: float) -> None:
    sums, anchors, counts = numbers(seed, 4, 5), numbers(seed + 1, 4, 5), torch.tensor([0.0, 1.0, 2.5, 40.0]).double()
    sums[0] = 0  # a class without images
    got = ops.anchored_prototypes(sums, counts, anchors, strength)
    wanted = oracle.anchored_prototypes(sums.numpy(), counts.numpy(), anchors.numpy(), strength)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**31 - 2), st.integers(1, 12), st.integers(1, 5))
def test_t3a_equals_the_oracle(seed: int, images: int, kept: int) -> None:
    features, logits, weight = numbers(seed, images, 6), 3 * numbers(seed + 1, images, 4), numbers(seed, 4, 6)
    got = ops.t3a(features, logits, weight, kept)
    np.testing.assert_allclose(got.numpy(), oracle.t3a(features.numpy(), logits.numpy(), weight.numpy(), kept))


@given(st.integers(0, 2**31 - 2), st.integers(1, 30), st.floats(0.01, 1))
def test_the_surest_equal_the_oracle(seed: int, images: int, share: float) -> None:
    scores = 3 * numbers(seed, images, 4)
    assert ops.surest(scores, share).tolist() == oracle.surest(scores.numpy(), share)
