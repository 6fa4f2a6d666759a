"""Abstaining: answer only where the model is sure enough that few answers are wrong (selective prediction).

The threshold is found as in Geifman and El-Yaniv (2017): the errors among the answers on source validation, with a
Clopper-Pearson upper bound. It promises the risk on new images of the source; it promises nothing on another domain.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DELTA = 0.1
"""The promise may fail with this probability over the draw of the validation images."""


def risk_bound(errors: int, count: int, delta: float) -> float:
    """Clopper-Pearson: the error rate is below this with probability 1 - delta."""
    from scipy.stats import beta

    return 1.0 if errors >= count else float(beta.ppf(1 - delta, errors + 1, count - errors))


def risk_threshold(confidence: Tensor, right: Tensor, risk: float, delta: float = DELTA) -> float | None:
    """The lowest confidence found at which to answer so that at most this share of answers is wrong; None if none is.

    Thresholds are tried by bisection over the sorted confidences, ⌈log2 n⌉ + 1 at most, each bound with its share of
    delta, so that the promise holds for the one that is chosen. [N], [N] bool.
    """
    count = len(confidence)
    if not count:
        return None
    ordered = confidence.double().sort(descending=True).values
    tries = math.ceil(math.log2(count)) + 1
    chosen: float | None = None
    low, high = 1, count  # how many answers are given
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
    """Share of images that get an answer, and the share of wrong answers (None without answers). [N], [N] bool."""
    accepted = torch.zeros_like(right) if threshold is None else confidence >= threshold
    if not bool(accepted.any()):
        return 0.0, None
    return accepted.double().mean().item(), (~right[accepted]).double().mean().item()
