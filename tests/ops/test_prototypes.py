"""Prototypes and pseudo-labels against the oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oracle
from proud import ops

SEEDS = st.integers(0, 2**31 - 1)


def unit(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def domain(seed: int, views: int, n: int, d: int, k: int, spread: float = 0.5) -> tuple[Tensor, Tensor]:
    """Clustered unit features of R views and the probabilities of a mediocre classifier."""
    g = torch.Generator().manual_seed(seed)
    centres, classes = unit(g, k, d), torch.randint(k, (n,), generator=g)
    noise = torch.randn(views, n, d, generator=g, dtype=torch.float64)
    features = torch.nn.functional.normalize(centres[classes] + spread * noise, dim=-1)
    logits = 3 * features @ centres.T + torch.randn(views, n, k, generator=g, dtype=torch.float64)
    return features, logits.softmax(-1)


def chunked(features: Tensor, probs: Tensor, size: int) -> ops.prototypes.Chunks:
    def start() -> Iterator[tuple[Tensor, Tensor]]:
        return zip(features.split(size, 1), probs.split(size, 1), strict=True)

    return start


def dapp(features: Tensor, probs: Tensor, tau: float) -> ops.PseudoLabels:
    """With all images in one chunk."""
    return ops.dapp(chunked(features, probs, features.shape[1]), tau)


@given(SEEDS, st.integers(1, 8), st.integers(1, 6), st.integers(1, 6))
def test_cosine_distance_equals_the_oracle_for_any_lengths(seed: int, n: int, d: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=g, dtype=torch.float64) * 10
    prototypes = torch.randn(k, d, generator=g, dtype=torch.float64) * 0.01
    prototypes[0] = 0
    distances = ops.cosine_distance(features, prototypes)
    np.testing.assert_allclose(distances, oracle.cosine_distance(features.numpy(), prototypes.numpy()), atol=1e-12)
    assert distances.min() >= 0 and distances.max() <= 2


def test_cosine_distance_at_its_extremes() -> None:
    x = torch.tensor([[3.0, 4.0], [-0.3, -0.4], [0.0, 0.0]])
    expected = torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(ops.cosine_distance(x, x), expected)
    many = unit(torch.Generator().manual_seed(0), 2000, 64).float()
    own = ops.cosine_distance(many, many).diagonal()
    assert (own >= 0).all(), "rounding must not make a distance negative"


def test_cosine_distance_gradients() -> None:
    g = torch.Generator().manual_seed(1)
    features = torch.randn(4, 3, generator=g, dtype=torch.float64, requires_grad=True)
    prototypes = torch.randn(2, 3, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ops.cosine_distance, (features, prototypes))
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    ops.cosine_distance(zero, prototypes).sum().backward()
    assert zero.grad is not None and (zero.grad == 0).all()


def test_half_precision_features_keep_full_precision_inside_autocast() -> None:
    g = torch.Generator().manual_seed(2)
    features, prototypes = unit(g, 50, 64).float(), unit(g, 5, 64).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ops.cosine_distance(features, prototypes)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, ops.cosine_distance(features, prototypes), rtol=0, atol=0)
    assert ops.cosine_distance(features.bfloat16(), prototypes.bfloat16()).dtype == torch.bfloat16


@given(SEEDS, st.integers(1, 10), st.integers(2, 6))
def test_nearest_prototype_equals_the_oracle(seed: int, n: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    features, prototypes = unit(g, n, 4), unit(g, k, 4)
    present = torch.rand(k, generator=g) < 0.5
    present[int(torch.randint(k, (1,), generator=g))] = True
    labels = ops.nearest_prototype(features, prototypes, present)
    assert labels.dtype == torch.int64
    np.testing.assert_array_equal(
        labels, oracle.nearest_prototype(features.numpy(), prototypes.numpy(), present.numpy())
    )
    np.testing.assert_array_equal(
        ops.nearest_prototype(features, prototypes),
        oracle.nearest_prototype(features.numpy(), prototypes.numpy(), [True] * k),
    )


def test_ties_go_to_the_lowest_class() -> None:
    features = torch.eye(2)
    duplicates = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert ops.nearest_prototype(features, duplicates).tolist() == [1, 0]
    assert ops.nearest_prototype(features, duplicates, torch.tensor([False, False, True, True])).tolist() == [2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_does_not_break_ties(dtype: torch.dtype) -> None:
    """Copies of one prototype at other lengths, and the single image that every soft prototype equals."""
    g = torch.Generator().manual_seed(8)
    features, one = unit(g, 200, 33).to(dtype), unit(g, 1, 33).to(dtype)
    scales = torch.rand(11, 1, generator=g).to(dtype) + 0.1
    assert (ops.cosine_distance(features, one * scales).argmin(-1) > 0).any(), "else there is nothing to guard against"
    assert (ops.nearest_prototype(features, one * scales) == 0).all()
    probs = torch.rand(1, 1, 11, generator=g).to(dtype)
    assert all(int(dapp(feature[None, None], probs, 0.1).labels) == 0 for feature in features)


@given(SEEDS, st.integers(1, 12), st.integers(2, 6))
def test_hard_prototypes_equal_the_oracle(seed: int, n: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    features, labels = unit(g, n, 3), torch.randint(k, (n,), generator=g)
    prototypes, present = ops.hard_prototypes(features, labels, k)
    expected, expected_present = oracle.hard_prototypes(features.numpy(), labels.numpy(), k)
    np.testing.assert_allclose(prototypes, expected, atol=1e-12)
    np.testing.assert_array_equal(present, expected_present)


def test_a_class_nobody_has_is_absent_with_a_zero_row() -> None:
    prototypes, present = ops.hard_prototypes(torch.eye(2), torch.tensor([2, 2]), 3)
    assert present.tolist() == [False, False, True] and present.dtype == torch.bool
    torch.testing.assert_close(prototypes, torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.5, 0.5]]))


@given(SEEDS, st.integers(1, 8), st.integers(2, 8), st.sampled_from([0.02, 0.03, 0.1, 1.0]))
def test_uncertainty_equals_the_oracle(seed: int, n: int, k: int, tau: float) -> None:
    g = torch.Generator().manual_seed(seed)
    distances = 2 * torch.rand(n, k, generator=g, dtype=torch.float64)
    present = torch.rand(k, generator=g) < 0.6
    present[0] = True
    got = ops.uncertainty(distances, tau, present)
    np.testing.assert_allclose(got, oracle.uncertainty(distances.numpy(), tau, present.numpy()), atol=1e-12)
    assert (got >= 0).all() and (got <= math.log(int(present.sum())) + 1e-12).all()
    np.testing.assert_allclose(
        ops.uncertainty(distances, tau), oracle.uncertainty(distances.numpy(), tau, [True] * k), atol=1e-12
    )


def test_uncertainty_at_its_extremes() -> None:
    distances = torch.tensor([[0.0, 2.0, 2.0], [1.0, 1.0, 1.0]], requires_grad=True)
    certain, unsure = ops.uncertainty(distances, 0.001)
    assert certain == 0
    torch.testing.assert_close(unsure, torch.tensor(math.log(3)))
    present = torch.tensor([True, False, True])
    masked = ops.uncertainty(distances, 0.02, present)
    torch.testing.assert_close(masked[1], torch.tensor(math.log(2)))
    masked.sum().backward()
    assert distances.grad is not None and distances.grad.isfinite().all()


def test_uncertainty_without_classes_or_doubt_is_zero_not_nan_nor_negative() -> None:
    nobody = torch.tensor([False, False])
    assert ops.uncertainty(torch.tensor([[0.3, 1.2]]), 0.02, nobody).tolist() == [0]
    views = torch.eye(2).expand(7, 2, 2)  # the float32 logarithm of 7 rounds the wrong way
    assert dapp(views, views, 0.01).uncertainty.min() >= 0


def assert_equals_the_oracle(got: ops.PseudoLabels, features: Tensor, probs: Tensor, tau: float) -> None:
    labels, entropies, prototypes, present = oracle.dapp(features.numpy(), probs.numpy(), tau)
    np.testing.assert_array_equal(got.labels, labels)
    np.testing.assert_array_equal(got.present, present)
    np.testing.assert_allclose(got.prototypes, prototypes, atol=1e-12)
    np.testing.assert_allclose(got.uncertainty, entropies, atol=1e-9)


@given(SEEDS, st.integers(1, 3), st.integers(1, 14), st.integers(2, 6), st.sampled_from([0.02, 0.1, 0.5]))
def test_dapp_equals_the_oracle(seed: int, views: int, n: int, k: int, tau: float) -> None:
    features, probs = domain(seed, views, n, 5, k)
    for size in (n, 1 + n // 3):  # one chunk, and several
        assert_equals_the_oracle(ops.dapp(chunked(features, probs, size), tau), features, probs, tau)


def test_a_class_without_probability_gets_a_finite_prototype() -> None:
    got = dapp(torch.eye(3)[None], torch.tensor([[[1.0, 0.0]] * 3]), 0.1)
    torch.testing.assert_close(got.prototypes, torch.tensor([[1 / 3] * 3, [0.0] * 3]))
    assert got.labels.tolist() == [0] * 3 and got.present.tolist() == [True, False]


def test_dapp_never_answers_with_an_absent_class() -> None:
    """One cluster, many classes: most classes win nobody in the first pass and must stay out of the second."""
    features, probs = domain(3, 3, 40, 8, 2, spread=0.05)
    many = torch.cat([probs, torch.full((3, 40, 6), 1e-3, dtype=torch.float64)], -1)
    got = dapp(features, many, 0.03)
    assert 0 < int(got.present.sum()) < 8
    assert got.present[got.labels].all()
    assert got.uncertainty.max() <= math.log(int(got.present.sum())) + 1e-9


def test_dapp_with_equal_features_everywhere() -> None:
    features = torch.tensor([0.6, 0.8]).expand(2, 5, 2)
    got = dapp(features, torch.full((2, 5, 3), 1 / 3), 0.02)
    assert got.labels.tolist() == [0] * 5 and got.present.tolist() == [True, False, False]
    assert got.uncertainty.tolist() == [0] * 5
    torch.testing.assert_close(got.prototypes, torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, 0.0]]))


def test_dapp_views_vote_by_summed_softmax_not_by_majority() -> None:
    """Two views lean slightly to class 0, one strongly to class 1: the sum decides for 1, a head count for 0."""
    anchors = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).repeat(20, 1).expand(3, 40, 2)
    lean, strong = math.radians(44), math.radians(88)
    odd = torch.tensor([[math.cos(a), math.sin(a)] for a in (lean, lean, strong)], dtype=torch.float64)
    features = torch.cat([anchors, odd.unsqueeze(1)], 1)
    probs = torch.cat([anchors, torch.full((3, 1, 2), 0.5, dtype=torch.float64)], 1)
    assert dapp(features, probs, 0.1).labels[-1] == 1


@pytest.mark.parametrize("size", [1, 2, 7, 30, 31])
def test_chunks_of_any_size_give_the_same(size: int) -> None:
    features, probs = domain(4, 3, 30, 6, 25, spread=1.0)
    got = ops.dapp(chunked(features, probs, size), 0.05)
    assert 2 <= int(got.present.sum()) < 25, "the comparison needs both present and absent classes"
    assert_equals_the_oracle(got, features, probs, 0.05)


def test_dapp_of_two_processes_equals_that_of_one() -> None:
    """Each process sees half the images; the other half's sums are replayed by `reduce`."""
    features, probs = domain(5, 2, 24, 6, 5)
    halves = [(features[:, :12], probs[:, :12]), (features[:, 12:], probs[:, 12:])]
    whole = ops.dapp(chunked(features, probs, 24), 0.1)
    totals: list[Tensor] = []

    def record(x: Tensor) -> Tensor:
        totals.append(x)
        return x

    ops.dapp(chunked(features, probs, 24), 0.1, reduce=record)
    assert len(totals) == 4
    for rank, half in enumerate(halves):
        replay = iter(totals)
        got = ops.dapp(chunked(*half, 5), 0.1, reduce=lambda _, replay=replay: next(replay))
        rows = slice(12 * rank, 12 * rank + 12)
        torch.testing.assert_close(got.labels, whole.labels[rows])
        torch.testing.assert_close(got.uncertainty, whole.uncertainty[rows], rtol=0, atol=1e-9)
        torch.testing.assert_close(got.prototypes, whole.prototypes)


def test_dapp_accumulates_half_precision_in_float32() -> None:
    features, probs = domain(6, 2, 3000, 8, 4)
    features, probs = features.bfloat16(), probs.bfloat16()
    got = ops.dapp(chunked(features, probs, 10), 0.1)
    expected = dapp(features.double(), probs.double(), 0.1)
    assert got.prototypes.dtype == torch.float32
    torch.testing.assert_close(got.prototypes.double(), expected.prototypes, rtol=0, atol=1e-3)
    assert (got.labels == expected.labels).float().mean() > 0.995


def test_large_inputs_in_single_precision_agree_with_double() -> None:
    features, probs = domain(7, 3, 4000, 64, 65, spread=0.3)
    got, expected = dapp(features.float(), probs.float(), 0.02), dapp(features, probs, 0.02)
    assert got.uncertainty.dtype == got.prototypes.dtype == torch.float32
    assert expected.uncertainty.dtype == expected.prototypes.dtype == torch.float64
    assert (got.labels == expected.labels).float().mean() > 0.999
    torch.testing.assert_close(got.uncertainty.double(), expected.uncertainty, rtol=0, atol=2e-3)


@given(SEEDS, st.integers(1, 4), st.integers(1, 6))
def test_merge_prototypes_equals_the_oracle(seed: int, domains: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    parts = [(torch.randn(k, 3, generator=g).double(), torch.rand(k, generator=g) < 0.6) for _ in range(domains)]
    expected = oracle.merge_prototypes([(p.numpy(), here.numpy()) for p, here in parts])
    np.testing.assert_allclose(ops.merge_prototypes(parts), expected, atol=1e-12)


def test_merging_ignores_whatever_an_absent_row_holds() -> None:
    garbage = (torch.tensor([[1.0], [torch.nan]]), torch.tensor([True, False]))
    nobody = (torch.tensor([[3.0], [5.0]]), torch.tensor([True, False]))
    torch.testing.assert_close(ops.merge_prototypes([garbage, nobody]), torch.tensor([[2.0], [0.0]]))
