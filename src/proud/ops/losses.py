"""Losses: Eq. 4 and cross-entropies of mixed targets, all as means over the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops.consensus import class_mix
from proud.ops.prototypes import cosine_distance


def prototype_merging_loss(
    features: Tensor, labels: Tensor, prototypes: Tensor, *, weights: Tensor | None = None, tau: float | Tensor = 1.0
) -> Tensor:
    """Eq. 4 as a mean: cross-entropy of softmax(-dist(feature, C-bar) / tau). [N,d], [N], [K,d], weights [N] -> scalar.

    The paper uses tau = 1."""
    logits = -cosine_distance(features, prototypes) / tau
    if weights is None:
        return F.cross_entropy(logits, labels)
    losses = F.cross_entropy(logits, labels, reduction="none")
    weights = weights.to(losses.dtype)
    return (weights * losses).sum() / weights.sum().clamp_min(torch.finfo(losses.dtype).tiny)


def log_class_mix(labels: Tensor, classes: int, least: float = 0.1) -> Tensor:
    """Log class prior of the labels, to add to logits in the loss: logit adjustment (Menon et al. 2021). [N] -> [K].

    The network then does not carry the class prior of the labels over to other domains. Priors are clamped to at least
    `least` times the uniform prior.
    """
    return class_mix(labels, classes).clamp_min(least / classes).log()


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -sum_k target_k log softmax_k(logits). [N,K], [N,K] -> scalar."""
    return -(targets.to(logits.dtype) * logits.log_softmax(-1)).sum(-1).mean()


def mixup_cross_entropy(logits: Tensor, labels_a: Tensor, labels_b: Tensor, ratio: Tensor | float) -> Tensor:
    """Mean of ratio CE(a) + (1 - ratio) CE(b). [N,K], [N], [N], scalar or [N] -> scalar."""
    log_p = logits.log_softmax(-1)
    loss_a, loss_b = (F.nll_loss(log_p, labels, reduction="none") for labels in (labels_a, labels_b))
    if isinstance(ratio, Tensor):
        ratio = ratio.to(log_p.dtype)
    return torch.lerp(loss_b, loss_a, ratio).mean()
