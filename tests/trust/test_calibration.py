"""Temperature and calibration errors against slow NumPy versions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proud.trust.calibration import calibration_error, fit_temperature, nll, probabilities, reliability, slope


def drawn(count: int, classes: int, heat: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are `heat` times too large for the labels drawn from them."""
    random = np.random.default_rng(seed)
    true = random.normal(0, 2, (count, classes))
    probs = np.exp(true) / np.exp(true).sum(1, keepdims=True)
    labels = [random.choice(classes, p=row) for row in probs]
    return torch.from_numpy(true * heat), torch.tensor(labels)


def slow_ece(probs: np.ndarray, labels: np.ndarray, bins: int, adaptive: bool) -> float:
    confidence, right = probs.max(1), probs.argmax(1) == labels
    if adaptive:
        groups = np.array_split(np.argsort(confidence, kind="stable"), bins)
    else:
        groups = []
        for b in range(bins):
            groups.append([i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins])
    total = 0.0
    for group in groups:
        if len(group):
            total += len(group) / len(labels) * abs(confidence[group].mean() - right[group].mean())
    return total


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("count", [7, 200])
def test_ece_equals_the_slow_version(count: int, adaptive: bool) -> None:
    logits, labels = drawn(count, 5, 2.0)
    probs = probabilities(logits)
    slow = slow_ece(probs.numpy(), labels.numpy(), 15, adaptive)
    assert calibration_error(probs, labels, adaptive=adaptive) == pytest.approx(slow, abs=1e-12)
    assert sum(part.count for part in reliability(probs, labels, adaptive=adaptive)) == count


def test_certain_predictions_fall_into_the_last_bin() -> None:
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert reliability(probs, torch.tensor([0, 1]))[-1].count == 2
    assert calibration_error(probs, torch.tensor([0, 1])) == 0.5
    assert calibration_error(probs[:0], torch.tensor([], dtype=torch.int64)) == 0


@pytest.mark.parametrize("heat", [0.3, 1.0, 4.0])
def test_temperature_undoes_the_scaling_of_the_logits(heat: float) -> None:
    logits, labels = drawn(4000, 6, heat)
    fitted = fit_temperature(logits.float(), labels)
    assert fitted == pytest.approx(heat, rel=0.1)
    assert abs(slope(logits.float().double(), labels, 1 / fitted)) < 1e-9
    before, after = (nll(logits.float(), labels, t) for t in (1.0, fitted))
    assert after <= before
    nearby = min(nll(logits.float(), labels, fitted * factor) for factor in (0.99, 1.01))
    assert after < nearby
    if heat == 4.0:
        raw, calibrated = probabilities(logits), probabilities(logits, fitted)
        assert calibration_error(calibrated, labels) < 0.3 * calibration_error(raw, labels)


def test_slope_is_the_derivative() -> None:
    logits, labels = drawn(50, 4, 1.5)
    step = 1e-5
    numeric = (nll(logits, labels, 1 / (0.7 + step)) - nll(logits, labels, 1 / (0.7 - step))) / (2 * step)
    assert slope(logits, labels, 0.7) == pytest.approx(numeric, rel=1e-6)


def test_temperature_of_edge_cases() -> None:
    logits = torch.tensor([[5.0, 0.0], [0.0, 3.0]]).repeat(20, 1)
    right, wrong = torch.tensor([0, 1]).repeat(20), torch.tensor([1, 0]).repeat(20)
    assert fit_temperature(logits, right) == 1.0  # no errors: the best T would be 0
    assert fit_temperature(logits, wrong) == 1.0  # worse than chance: the best T would be infinite
    assert fit_temperature(logits[:0], right[:0]) == 1.0
    huge = torch.tensor([[4000.0, 0.0], [0.0, 4000.0], [4000.0, 0.0]]).repeat(20, 1)
    assert fit_temperature(huge, torch.tensor([0, 1, 1]).repeat(20)) == 1.0
    tiny = torch.tensor([[1e-4, 0.0], [0.0, 1e-4], [1e-4, 0.0]]).repeat(20, 1)
    assert fit_temperature(tiny, torch.tensor([0, 1, 1]).repeat(20)) == 1.0


def test_no_temperature_is_fitted_on_few_images() -> None:
    logits, labels = drawn(30, 3, 4.0)
    assert fit_temperature(logits, labels) > 2
    assert fit_temperature(logits[:29], labels[:29]) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_scaling_never_increases_the_nll(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = torch.from_numpy(random.normal(0, random.choice([0.01, 1, 100]), (random.integers(1, 90), 3)))
    labels = torch.from_numpy(random.integers(0, 3, len(logits)))
    assert nll(logits, labels, fit_temperature(logits, labels)) <= nll(logits, labels) + 1e-12
