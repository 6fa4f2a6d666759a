"""Selective prediction: abstain below a confidence threshold, so that few answers are wrong.

The threshold follows Geifman and El-Yaniv (2017): a Clopper-Pearson upper bound on the error rate among the answers on
source validation. The risk is guaranteed for new images of the source, not for other domains.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DELTA = 0.1
"""Probability, over the draw of the validation images, that the guarantee fails."""


def risk_bound(errors: int, count: int, delta: float) -> float:
    """Clopper-Pearson: the error rate is below this with probability 1 - delta."""
    from scipy.stats import beta  # noqa: PLC0415

    return 1.0 if errors >= count else float(beta.ppf(1 - delta, errors + 1, count - errors))


def risk_threshold(confidence: Tensor, right: Tensor, risk: float, delta: float = DELTA) -> float | None:
    """The lowest confidence threshold found that bounds the share of wrong answers by `risk`, or None. [N], [N] bool.

    Bisection over the sorted confidences tries at most ⌈log2 n⌉ + 1 thresholds. Each bound uses an equal share of
    delta, so that the guarantee holds for the chosen threshold.
    """
    count = len(confidence)
    if not count:
        return None
    ordered = confidence.double().sort(descending=True).values
    tries = math.ceil(math.log2(count)) + 1
    chosen: float | None = None
    low, high = 1, count  # number of answers
    while low <= high:
        answered = (low + high) // 2
        threshold = ordered[answered - 1].item()
        accepted = confidence >= threshold
        errors = int((accepted & ~right).sum())
        if risk_bound(errors, int(accepted.sum()), delta / tries) <= risk:
            chosen, low = threshold, answered + 1
        else:
            high = answered - 1
    return chosen


def answered_and_risk(confidence: Tensor, right: Tensor, threshold: float | None) -> tuple[float, float | None]:
    """Share of answered images, and share of wrong answers (None without answers). [N], [N] bool."""
    accepted = torch.zeros_like(right) if threshold is None else confidence >= threshold
    if not bool(accepted.any()):
        return 0.0, None
    return accepted.double().mean().item(), (~right[accepted]).double().mean().item()
