"""Classifying the images of one site together, without training: prototypes of the site, and T3A for comparison."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from proud.ops._shared import wide_matmul, widen


def anchored_prototypes(sums: Tensor, counts: Tensor, anchors: Tensor, strength: float) -> Tensor:
    """Directions of the features summed under each class, and those of the model's own prototypes, which count as
    `strength` images: a class that is rare at the site keeps them. [K,d], [K], [K,d] -> [K,d].
    """
    site, own = (torch.nn.functional.normalize(widen(vectors), dim=1) for vectors in (sums, anchors))
    return counts.unsqueeze(1) * site + strength * own


def surest(scores: Tensor, share: float) -> Tensor:
    """Which rows are among the share of their class with the lowest entropy of softmax(scores), at least one of each
    class. [N,K] -> [N] bool."""
    labels, entropy = scores.argmax(1), torch.special.entr(widen(scores).softmax(1)).sum(1)
    chosen = torch.zeros_like(labels, dtype=torch.bool)
    for k in range(scores.shape[1]):
        rows = (labels == k).nonzero().flatten()
        chosen[rows[entropy[rows].argsort(stable=True)[: math.ceil(share * len(rows))]]] = True
    return chosen


def t3a(features: Tensor, logits: Tensor, weight: Tensor, kept: int) -> Tensor:
    """T3A (Iwasawa and Matsuo 2021): class centroids of the `kept` most certain features of the class, beside the
    classifier's weight. Returns scores. [N,d], [N,K], [K,d] -> [N,K]."""
    unit = torch.nn.functional.normalize(widen(features), dim=1)
    entropy = torch.special.entr(widen(logits).softmax(1)).sum(1)
    labels = logits.argmax(1)
    centroids = torch.nn.functional.normalize(widen(weight), dim=1)
    for k in range(len(centroids)):
        rows = (labels == k).nonzero().flatten()
        sure = rows[entropy[rows].argsort(stable=True)[:kept]]
        centroids[k] += unit[sure].sum(0)
    return wide_matmul(unit, torch.nn.functional.normalize(centroids, dim=1).mT)
