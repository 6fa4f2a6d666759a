"""Temperature scaling (Guo et al. 2017) and calibration errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 15
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MIN_IMAGES = 30  # a temperature fitted on fewer images does not generalise


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T that minimises the NLL of softmax(logits / T). [N,K], [N].

    The NLL is convex in 1/T: the zero of its derivative is found by bisection in float64. T stays 1 with too few
    images, if every image is right (the best T would be 0), if the best T is out of bounds or does not lower the NLL.
    """
    logits, labels = logits.double().cpu(), labels.cpu()
    logits = logits - logits.amax(1, keepdim=True)
    if len(logits) < MIN_IMAGES or bool((logits.argmax(1) == labels).all()):
        return 1.0
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    if slope(logits, labels, low) >= 0 or slope(logits, labels, high) <= 0:
        return 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if slope(logits, labels, middle) > 0:
            high = middle
        else:
            low = middle
    best = 2 / (low + high)
    return best if nll(logits, labels, best) <= nll(logits, labels) else 1.0


def slope(logits: Tensor, labels: Tensor, inverse: float) -> float:
    """The derivative of the mean NLL with respect to 1/T: the mean of E[logit] - logit of the label."""
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
    """Images with confidence in (low, high]: their count, mean confidence and accuracy."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(probs: Tensor, labels: Tensor, bins: int = BINS, adaptive: bool = False) -> list[Bin]:
    """Bins of equal width over (0, 1], or of equal count if adaptive; empty bins are zero. [N,K], [N]."""
    confidence, predicted = probs.double().max(1)
    right = (predicted == labels).double()
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
    parts = reliability(probs, labels, bins, adaptive)
    return sum(part.count * abs(part.confidence - part.accuracy) for part in parts) / len(labels)
