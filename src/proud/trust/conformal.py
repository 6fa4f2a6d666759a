"""Prediction sets by split conformal prediction.

Sets calibrated on source validation contain the true class of new source images with at least the chosen coverage. On
another domain there is no guarantee; coverage there can only be measured.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Score = Literal["lac", "aps"]


def class_scores(probs: Tensor, score: Score = "lac") -> Tensor:
    """Nonconformity score of each class. [N,K] -> [N,K].

    lac (Sadinle et al. 2019): 1 - p. aps (Romano et al. 2020, without randomisation): the total probability of this
    class and all more likely ones.
    """
    if score == "lac":
        return 1 - probs
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    return torch.empty_like(probs).scatter_(1, order, ordered.cumsum(1))


def true_scores(probs: Tensor, labels: Tensor, score: Score = "lac") -> Tensor:
    """Nonconformity scores of the true classes. [N,K], [N] -> [N]."""
    return class_scores(probs, score).gather(1, labels[:, None]).squeeze(1)


def conformal_quantile(scores: Tensor, coverage: float) -> float:
    """The ⌈(n+1)·coverage⌉-th smallest of n calibration scores; infinite if n is too small for this coverage."""
    count = len(scores)
    rank = math.ceil(round((count + 1) * coverage, 9))  # float error: (9+1)·0.9 must be 9
    return math.inf if rank > count else scores.double().sort().values[max(rank, 1) - 1].item()


def prediction_sets(probs: Tensor, quantile: float, score: Score = "lac") -> Tensor:
    """Classes with a score up to the quantile, and always the most likely class. [N,K] -> [N,K] bool."""
    return up_to_quantile(class_scores(probs, score), probs, quantile)


def up_to_quantile(scores: Tensor, probs: Tensor, quantile: float) -> Tensor:
    """`prediction_sets` from the scores of the classes. [N,K], [N,K] -> [N,K] bool."""
    rounding = 1e-12
    return (scores <= quantile + rounding).scatter(1, probs.argmax(1, keepdim=True), True)


def coverage_and_size(sets: Tensor, labels: Tensor) -> tuple[float, float]:
    """Share of sets that contain the true class, and mean number of classes per set. [N,K], [N]."""
    return sets.gather(1, labels[:, None]).double().mean().item(), sets.sum(1).double().mean().item()
