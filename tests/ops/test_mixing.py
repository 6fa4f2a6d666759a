"""Mixing and matching of images against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import oracle
from proud import ops

SEEDS = st.integers(0, 2**31 - 1)
STEPS = 2**53  # a generator's uniform float64 is a multiple of 1 / STEPS
DRAWS = (st.integers(0, STEPS) | st.integers(0, 1000) | st.integers(STEPS - 1000, STEPS)).map(lambda i: i / STEPS)


@given(SEEDS, st.integers(1, 20), st.sampled_from([0.1, 0.5, 2.0]), st.sampled_from([0.0, 0.2, 0.35, 0.5]))
def test_mixing_ratio_equals_the_oracle(seed: int, n: int, tau: float, threshold: float) -> None:
    g = torch.Generator().manual_seed(seed)
    eps, uniform = 2 * torch.rand(2, n, generator=g, dtype=torch.float64)
    uniform = uniform / 2
    eps[0] = 0
    np.testing.assert_allclose(ops.certainty_ratio(eps, tau), oracle.certainty_ratio(eps.numpy(), tau), rtol=1e-12)
    expected = oracle.mixing_ratio(eps.numpy(), uniform.numpy(), tau, threshold)
    np.testing.assert_allclose(ops.mixing_ratio(eps, uniform, tau, threshold), expected, rtol=1e-12)


def test_the_paper_s_threshold_is_crossed_below_0_3095_nats() -> None:
    uniform = torch.full((2,), 0.9)
    got = ops.mixing_ratio(torch.tensor([0.3094, 0.3096]), uniform, 0.5, 0.35)
    assert got[0] == uniform[0]
    torch.testing.assert_close(got[1], torch.tensor(0.35), atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
def test_ud_mix_equals_the_oracle(shape: tuple[int, ...]) -> None:
    g = torch.Generator().manual_seed(0)
    labeled, unlabeled = torch.randn(2, 6, *shape, generator=g, dtype=torch.float64)
    ratio = torch.rand(6, generator=g, dtype=torch.float64)
    got = ops.ud_mix(labeled, unlabeled, ratio)
    np.testing.assert_allclose(got, oracle.ud_mix(labeled.numpy(), unlabeled.numpy(), ratio.numpy()), rtol=1e-12)
    torch.testing.assert_close(ops.ud_mix(labeled, unlabeled, torch.ones(6)), unlabeled)
    torch.testing.assert_close(ops.ud_mix(labeled, unlabeled, torch.zeros(6)), labeled)


@given(SEEDS, st.integers(1, 6), st.integers(0, 30), st.integers(1, 20))
def test_sample_match_equals_the_oracle(seed: int, k: int, extra: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    domain = torch.cat([torch.arange(k), torch.randint(k, (extra,), generator=g)])
    domain = domain[torch.randperm(len(domain), generator=g)]
    labels, uniform = torch.randint(k, (n,), generator=g), torch.rand(n, generator=g, dtype=torch.float64)
    uniform[0] = 1.0  # rounding may reach it
    rows = ops.sample_match(labels, ops.class_index(domain, k), uniform)
    assert rows.dtype == torch.int64
    np.testing.assert_array_equal(rows, oracle.sample_match(labels.numpy(), domain.numpy(), uniform.numpy()))
    assert (domain[rows] == labels).all()


def test_every_row_of_a_class_is_drawn_equally_often() -> None:
    domain = torch.tensor([1, 0, 1, 1, 0])
    uniform = (torch.arange(600) + 0.5) / 600
    rows = ops.sample_match(torch.ones(600, dtype=torch.int64), ops.class_index(domain, 2), uniform)
    assert torch.bincount(rows, minlength=5).tolist() == [200, 0, 200, 200, 0]


def test_class_index_lists_rows_by_class_in_order() -> None:
    index = ops.class_index(torch.tensor([2, 0, 1, 0, 2, 2]), 3)
    assert index.order.tolist() == [1, 3, 2, 0, 4, 5]
    assert index.start.tolist() == [0, 2, 3] and index.count.tolist() == [2, 1, 3]


def test_class_index_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"class 1, 3\b"):
        ops.class_index(torch.tensor([0, 2, 2]), 4)
    with pytest.raises(ValueError, match=r"0\.\.1.*found 0\.\.5"):
        ops.class_index(torch.tensor([0, 1, 5]), 2)


@given(SEEDS, st.integers(1, 10))
def test_mixup_equals_the_oracle(seed: int, n: int) -> None:
    g = torch.Generator().manual_seed(seed)
    features, ratio = torch.randn(n, 3, generator=g, dtype=torch.float64), torch.rand(n, generator=g).double()
    partner = torch.randperm(n, generator=g)
    got = ops.mixup(features, partner, ratio)
    np.testing.assert_allclose(got, oracle.mixup(features.numpy(), partner.numpy(), ratio.numpy()), rtol=1e-12)
    expected = oracle.mixup(features.numpy(), partner.numpy(), [float(ratio[0])] * n)
    np.testing.assert_allclose(ops.mixup(features, partner, ratio[0]), expected, rtol=1e-12)


@given(
    st.sampled_from([0.1, 0.4, 0.75, 1.0, 2.0, 20.0]),
    st.lists(DRAWS, min_size=1, max_size=20),
)
def test_beta_quantile_equals_scipy_s(a: float, values: list[float]) -> None:
    uniform = torch.tensor(values, dtype=torch.float64)
    np.testing.assert_allclose(ops.beta_quantile(uniform, a), oracle.beta_quantile(uniform.numpy(), a), atol=1e-4)
    single = uniform.float()
    expected = oracle.beta_quantile(single.double().numpy(), a)
    np.testing.assert_allclose(ops.beta_quantile(single, a), expected, atol=1e-4)


@pytest.mark.parametrize("a", [0.4, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beta_draws_follow_the_distribution(a: float, dtype: torch.dtype) -> None:
    uniform = torch.rand(100, 200, generator=torch.Generator().manual_seed(0), dtype=dtype)
    draws = ops.beta_quantile(uniform, a)
    assert draws.shape == uniform.shape and draws.dtype == dtype
    assert stats.kstest(draws.double().flatten().numpy(), stats.beta(a, a).cdf).pvalue > 1e-3
    ends = ops.beta_quantile(torch.tensor([0.0, 0.5, 1.0], dtype=dtype), a)
    torch.testing.assert_close(ends, torch.tensor([0.0, 0.5, 1.0], dtype=dtype))


def test_mixing_keeps_the_images_precision() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        x, ratio = torch.ones(2, 3, dtype=dtype), torch.tensor([0.25, 0.5])
        assert ops.ud_mix(x, x, ratio).dtype == dtype
        assert ops.mixup(x, torch.tensor([1, 0]), ratio).dtype == dtype
        assert ops.mixing_ratio(x[:, 0], ratio, 0.5, 0.35).dtype == dtype
