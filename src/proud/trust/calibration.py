"""Is a confidence of 90 % right nine times in ten? Temperature scaling (Guo et al. 2017) and calibration errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 15
COLDEST, HOTTEST = 0.05, 20.0
ENOUGH = 30  # images to fit a temperature on: fewer say more about themselves than about the next ones


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T whose softmax(logits / T) has the least NLL. [N,K], [N].

    The NLL is convex in 1/T, so the zero of its slope is found by bisection, in float64; it is never worse than at
    T = 1. Where every image is right the best T would be 0: such a set says nothing about doubt, and T stays 1, as it
    does with too few images and where the best T lies beyond the bounds.
    """
    logits, labels = logits.double().cpu(), labels.cpu()
    logits = logits - logits.amax(1, keepdim=True)
    if len(logits) < ENOUGH or bool((logits.argmax(1) == labels).all()):
        return 1.0
    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(logits, labels, low) >= 0 or slope(logits, labels, high) <= 0:
        return 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if slope(logits, labels, middle) > 0:
            high = middle
        else:
            low = middle
    found = 2 / (low + high)
    return found if nll(logits, labels, found) <= nll(logits, labels) else 1.0


def believed(temperature: float, images: int) -> float:
    """A temperature that an older version fitted: 1 where `fit_temperature` would say so now."""
    return temperature if images >= ENOUGH and COLDEST < temperature < HOTTEST else 1.0


def slope(logits: Tensor, labels: Tensor, inverse: float) -> float:
    """The derivative of the mean NLL by 1/T: the mean of E[logit] - logit of the label."""
    expected = ((logits * inverse).softmax(1) * logits).sum(1)
    return (expected - logits.gather(1, labels[:, None]).squeeze(1)).mean().item()


def nll(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> float:
    """Mean negative log-likelihood, nats. [N,K], [N]."""
    return torch.nn.functional.cross_entropy(logits.double() / temperature, labels).item()


def probabilities(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """float64 softmax(logits / T). [N,K] -> [N,K]."""
    return (logits.double() / temperature).softmax(1)


@dataclass(frozen=True)
class Bin:
    """Images whose confidence lies in (low, high]: how many, how sure on average, how often right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(probs: Tensor, labels: Tensor, bins: int = BINS, adaptive: bool = False) -> list[Bin]:
    """Bins of equal width over (0, 1], or of equal count if adaptive; empty ones have zeros. [N,K], [N]."""
    confidence, guess = probs.double().max(1)
    right = (guess == labels).double()
    if adaptive:
        parts = [part for part in confidence.argsort(stable=True).tensor_split(bins) if len(part)]
        edges = [(confidence[part[0]].item(), confidence[part[-1]].item()) for part in parts]
    else:
        place = (confidence * bins).ceil().long().clamp(1, bins) - 1
        parts = [(place == b).nonzero().flatten() for b in range(bins)]
        edges = [(b / bins, (b + 1) / bins) for b in range(bins)]
    return [
        Bin(low, high, len(part), confidence[part].mean().item(), right[part].mean().item())
        if len(part)
        else Bin(low, high, 0, 0.0, 0.0)
        for part, (low, high) in zip(parts, edges, strict=True)
    ]


def calibration_error(probs: Tensor, labels: Tensor, bins: int = BINS, adaptive: bool = False) -> float:
    """ECE: the mean gap between confidence and accuracy over the bins, weighted by their counts. In [0, 1]."""
    if not len(labels):
        return 0.0
    found = reliability(probs, labels, bins, adaptive)
    return sum(part.count * abs(part.confidence - part.accuracy) for part in found) / len(labels)
