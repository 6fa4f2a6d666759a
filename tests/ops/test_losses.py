"""Losses against the oracle."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from proud import ops

SEEDS = st.integers(0, 2**31 - 1)


@given(SEEDS, st.integers(1, 8), st.integers(2, 6))
def test_prototype_merging_loss_equals_the_oracle(seed: int, n: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 4, generator=g, dtype=torch.float64)
    prototypes = torch.randn(k, 4, generator=g, dtype=torch.float64)
    prototypes[-1] = 0
    labels = torch.randint(k, (n,), generator=g)
    weights = torch.rand(n, generator=g, dtype=torch.float64) + 0.1
    arrays = features.numpy(), labels.numpy(), prototypes.numpy()
    got = ops.prototype_merging_loss(features, labels, prototypes)
    np.testing.assert_allclose(got, oracle.prototype_merging_loss(*arrays, [1.0] * n), rtol=1e-12)
    weighted = ops.prototype_merging_loss(features, labels, prototypes, weights=weights)
    np.testing.assert_allclose(weighted, oracle.prototype_merging_loss(*arrays, weights.numpy()), rtol=1e-12)
    sharp = ops.prototype_merging_loss(features, labels, prototypes, weights=weights, tau=0.1)
    np.testing.assert_allclose(sharp, oracle.prototype_merging_loss(*arrays, weights.numpy(), 0.1), rtol=1e-9)


def test_prototype_merging_loss_gradients_and_no_weight() -> None:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(5, 3, generator=g, dtype=torch.float64, requires_grad=True)
    prototypes, labels = torch.randn(4, 3, generator=g, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 3])
    weights = torch.rand(5, generator=g, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: ops.prototype_merging_loss(x, labels, prototypes), features)
    assert torch.autograd.gradcheck(
        lambda x: ops.prototype_merging_loss(x, labels, prototypes, weights=weights), features
    )
    assert ops.prototype_merging_loss(features, labels, prototypes, weights=0 * weights) == 0


def test_prototype_merging_loss_takes_half_features_and_float_prototypes() -> None:
    g = torch.Generator().manual_seed(1)
    features, prototypes = torch.randn(6, 8, generator=g).bfloat16(), torch.randn(3, 8, generator=g)
    labels = torch.tensor([0, 1, 2] * 2)
    got = ops.prototype_merging_loss(features, labels, prototypes)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, ops.prototype_merging_loss(features.float(), labels, prototypes))


@given(SEEDS, st.integers(1, 8), st.integers(2, 6), st.floats(0.1, 30))
def test_soft_cross_entropy_equals_the_oracle(seed: int, n: int, k: int, scale: float) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=g, dtype=torch.float64)
    targets = torch.randn(n, k, generator=g, dtype=torch.float64).softmax(-1)
    expected = oracle.soft_cross_entropy(logits.numpy(), targets.numpy())
    np.testing.assert_allclose(ops.soft_cross_entropy(logits, targets), expected, rtol=1e-9)


@given(SEEDS, st.integers(1, 8), st.integers(2, 6))
def test_mixup_cross_entropy_equals_the_oracle(seed: int, n: int, k: int) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=g, dtype=torch.float64)
    a, b = torch.randint(k, (2, n), generator=g)
    ratio = torch.rand(n, generator=g, dtype=torch.float64)
    expected = oracle.mixup_cross_entropy(logits.numpy(), a.numpy(), b.numpy(), ratio.numpy())
    np.testing.assert_allclose(ops.mixup_cross_entropy(logits, a, b, ratio), expected, rtol=1e-9)
    expected = oracle.mixup_cross_entropy(logits.numpy(), a.numpy(), b.numpy(), [float(ratio[0])] * n)
    np.testing.assert_allclose(ops.mixup_cross_entropy(logits, a, b, ratio[0]), expected, rtol=1e-9)


def test_cross_entropy_gradients() -> None:
    g = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 3, generator=g, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(4, 3, generator=g, dtype=torch.float64).softmax(-1)
    a, b, ratio = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 2]), torch.rand(4, generator=g).double()
    assert torch.autograd.gradcheck(lambda x: ops.soft_cross_entropy(x, targets), logits)
    assert torch.autograd.gradcheck(lambda x: ops.mixup_cross_entropy(x, a, b, ratio), logits)


def test_losses_keep_their_precision() -> None:
    logits, labels = torch.zeros(3, 3), torch.tensor([0, 2, 1])
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype)
        assert ops.soft_cross_entropy(x, x.softmax(-1)).dtype == dtype
        assert ops.mixup_cross_entropy(x, labels, labels, torch.tensor(0.3)).dtype == dtype
        assert ops.prototype_merging_loss(x + 1, labels, x + 1).dtype == dtype


@given(SEEDS, st.integers(1, 40), st.integers(2, 6))
def test_the_logarithms_of_a_class_mix_equal_the_oracle(seed: int, n: int, k: int) -> None:
    labels = torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    np.testing.assert_allclose(ops.log_class_mix(labels, k), oracle.log_class_mix(labels.numpy(), k), rtol=1e-6)
    torch.testing.assert_close(ops.expected_mix(labels, k, even=False).sum(), torch.tensor(1.0))
    assert ops.expected_mix(labels, k, even=True).tolist() == [np.float32(1 / k)] * k


def test_logits_learned_under_a_class_mix_do_not_contain_it() -> None:
    """One image, nine labels in ten of the first class: the best logits are even under the mix, nine to one without."""
    labels = torch.tensor([0] * 9 + [1])
    for mix, wanted in ((ops.log_class_mix(labels, 2), 0.0), (torch.zeros(2), np.log(9))):
        logits = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.LBFGS([logits], max_iter=50)

        def loss(mix: torch.Tensor = mix, logits: torch.Tensor = logits) -> torch.Tensor:
            logits.grad = None
            value = torch.nn.functional.cross_entropy((logits + mix).expand(10, 2), labels)
            value.backward()
            return value

        optimizer.step(loss)
        np.testing.assert_allclose((logits[0] - logits[1]).item(), wanted, atol=1e-3)
