"""The losses: Eq. 4 and the cross-entropies of mixed targets. All are means over the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops.consensus import class_mix
from proud.ops.prototypes import cosine_distance


def prototype_merging_loss(
    features: Tensor, labels: Tensor, prototypes: Tensor, *, weights: Tensor | None = None, tau: float = 1.0
) -> Tensor:
    """Eq. 4 as a mean: cross-entropy of softmax(-dist(feature, C-bar) / tau). [N,d], [N], [K,d], weights [N] -> scalar.

    The paper's tau is 1."""
    logits = -cosine_distance(features, prototypes) / tau
    if weights is None:
        return F.cross_entropy(logits, labels)
    losses = F.cross_entropy(logits, labels, reduction="none")
    weights = weights.to(losses.dtype)
    return (weights * losses).sum() / weights.sum().clamp_min(torch.finfo(losses.dtype).tiny)


def log_class_mix(labels: Tensor, classes: int, least: float = 0.1) -> Tensor:
    """Logarithms of the classes' shares among the labels, to be added to logits in a loss over such images. [N] -> [K].

    A network trained under it does not take rare classes to be rare elsewhere (Menon et al. 2021). Rarer than `least`
    times an even share is treated as that.
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
