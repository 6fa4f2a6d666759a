"""Prediction sets by split conformal prediction: which classes can an image have, at a chosen coverage?

Sets calibrated on source validation cover the true class at least that often on new images of the source. On another
domain nothing is guaranteed; coverage there can only be measured.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Score = Literal["lac", "aps"]


def class_scores(probs: Tensor, score: Score = "lac") -> Tensor:
    """How strange each class would be. [N,K] -> [N,K].

    lac (Sadinle et al. 2019): 1 - p. aps (Romano et al. 2020, without its randomisation): the total probability of
    this class and of all that are likelier.
    """
    if score == "lac":
        return 1 - probs
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    return torch.empty_like(probs).scatter_(1, order, ordered.cumsum(1))


def true_scores(probs: Tensor, labels: Tensor, score: Score = "lac") -> Tensor:
    """Scores of the true classes. [N,K], [N] -> [N]."""
    return class_scores(probs, score).gather(1, labels[:, None]).squeeze(1)


def conformal_quantile(scores: Tensor, coverage: float) -> float:
    """The ⌈(n+1)·coverage⌉-th smallest of n calibration scores; infinite where n is too small for this coverage."""
    count = len(scores)
    rank = math.ceil(round((count + 1) * coverage, 9))  # rounded: (9+1)·0.9 is 9, not a little more
    return math.inf if rank > count else scores.double().sort().values[max(rank, 1) - 1].item()


def prediction_sets(probs: Tensor, quantile: float, score: Score = "lac") -> Tensor:
    """Classes whose score is at most the quantile, and always the likeliest one. [N,K] -> [N,K] bool."""
    rounding = 1e-12
    inside = class_scores(probs, score) <= quantile + rounding
    return inside.scatter(1, probs.argmax(1, keepdim=True), True)


def coverage_and_size(sets: Tensor, labels: Tensor) -> tuple[float, float]:
    """Share of sets that hold the true class, and the mean number of classes in a set. [N,K], [N]."""
    return sets.gather(1, labels[:, None]).double().mean().item(), sets.sum(1).double().mean().item()
