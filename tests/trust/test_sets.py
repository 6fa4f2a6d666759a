"""Prediction sets and abstention: slow versions, and the guarantees on exchangeable data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from proud.trust.conformal import class_scores, conformal_quantile, coverage_and_size, prediction_sets, true_scores
from proud.trust.selective import answered_and_risk, risk_bound, risk_threshold


def draw(random: np.random.Generator, count: int, classes: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of an uncalibrated model, and labels."""
    logits = random.normal(0, 2, (count, classes))
    true = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (true.cumsum(1) < random.random((count, 1))).sum(1)
    return torch.from_numpy(2.5 * logits).softmax(1), torch.from_numpy(labels)


def slow_quantile(scores: list[float], coverage: float) -> float:
    """The smallest score such that ⌈(n+1)·coverage⌉ scores are at most it."""
    need = math.ceil((len(scores) + 1) * coverage - 1e-9)
    for score in sorted(scores):
        if sum(other <= score for other in scores) >= need:
            return score
    return math.inf


@pytest.mark.parametrize("count", [1, 9, 10, 99, 137])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.99])
def test_quantile(count: int, coverage: float) -> None:
    scores = np.random.default_rng(count).random(count)
    assert conformal_quantile(torch.from_numpy(scores), coverage) == slow_quantile(scores.tolist(), coverage)


def test_nine_images_are_just_enough_for_nine_tenths() -> None:
    assert conformal_quantile(torch.arange(9.0), 0.9) == 8
    assert conformal_quantile(torch.arange(8.0), 0.9) == math.inf


def test_scores_by_hand() -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    assert class_scores(probs).tolist()[0] == pytest.approx([0.8, 0.5, 0.7])
    assert class_scores(probs, "aps").tolist()[0] == pytest.approx([1.0, 0.5, 0.8])
    assert prediction_sets(probs, 0.7).tolist() == [[False, True, True]]
    assert prediction_sets(probs, 0.8, "aps").tolist() == [[False, True, True]]
    assert prediction_sets(probs, 0.1).tolist() == [[False, True, False]]  # never empty
    assert prediction_sets(probs, math.inf).all()
    assert coverage_and_size(torch.tensor([[True, True], [True, False]]), torch.tensor([1, 1])) == (0.5, 1.5)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_coverage_holds_on_exchangeable_data(score) -> None:
    """Mean coverage over many calibration sets; 2,000 × 40 images distinguish 0.88 from 0.9."""
    random = np.random.default_rng(3)
    covered, sizes = [], []
    for _ in range(2000):
        probs, labels = draw(random, 49 + 40)
        quantile = conformal_quantile(true_scores(probs[:49], labels[:49], score), 0.9)
        share, size = coverage_and_size(prediction_sets(probs[49:], quantile, score), labels[49:])
        covered.append(share)
        sizes.append(size)
    assert 0.895 < np.mean(covered) < 0.96  # above 0.9: the most likely class is always in the set
    assert np.mean(sizes) < 6


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    for errors, count in ((0, 10), (3, 40), (39, 40)):
        bound = risk_bound(errors, count, 0.1)
        assert binom.cdf(errors, count, bound) == pytest.approx(0.1)
    assert risk_bound(5, 5, 0.1) == 1
    assert risk_bound(0, 30, 0.1) == pytest.approx(1 - 0.1 ** (1 / 30))


def test_abstention_keeps_its_guarantee_on_exchangeable_data() -> None:
    random = np.random.default_rng(5)
    probs, labels = draw(random, 60_000)
    confidence, predicted = probs.max(1)
    right = predicted == labels
    broken, answered = 0, []
    for trial in range(100):
        mine = slice(300 * trial, 300 * (trial + 1))
        threshold = risk_threshold(confidence[mine], right[mine], 0.3, delta=0.1)
        share, risk = answered_and_risk(confidence[30_000:], right[30_000:], threshold)
        answered.append(share)
        broken += risk is not None and risk > 0.3
    assert broken <= 10
    assert np.mean(answered) > 0.2  # it does not abstain on everything


def test_too_few_images_guarantee_nothing() -> None:
    sure, right = torch.linspace(0.5, 1, 10), torch.ones(10, dtype=torch.bool)
    assert risk_threshold(sure, right, 0.05) is None
    assert risk_threshold(sure[:0], right[:0], 0.5) is None
    assert answered_and_risk(sure, right, None) == (0.0, None)
    many = torch.linspace(0.5, 1, 1000)
    assert risk_threshold(many, torch.ones(1000, dtype=torch.bool), 0.05) == 0.5  # all right: answer always


def test_equal_confidences_are_treated_equally() -> None:
    sure = torch.full((200,), 0.9)
    right = torch.arange(200) >= 100  # half are wrong
    assert risk_threshold(sure, right, 0.3) is None


def test_sixty_right_answers_guarantee_five_percent() -> None:
    sure = torch.linspace(1, 0.5, 120)
    right = (torch.arange(120) < 60) | (torch.arange(120) % 2 == 0)
    threshold = risk_threshold(sure, right, 0.05)
    assert threshold is not None and answered_and_risk(sure, right, threshold) == (0.5083333333333333, 0.0)
    right[:3] = False  # among the most confident: no threshold can help
    assert risk_threshold(sure, right, 0.05) is None


def test_one_confident_error_among_many_does_not_forbid_all_answers() -> None:
    sure, right = torch.linspace(1, 0.5, 1000), torch.ones(1000, dtype=torch.bool)
    right[5] = False
    assert risk_threshold(sure, right, 0.05) == 0.5
