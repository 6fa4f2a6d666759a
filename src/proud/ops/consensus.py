"""Pseudo-labels from prototypes and classifier together, and class priors."""

from __future__ import annotations

import torch
from torch import Tensor

from proud.ops._shared import widen


def class_mix(labels: Tensor, classes: int) -> Tensor:
    """Class distribution of the labels. [N] -> [K]."""
    one = torch.ones_like(labels, dtype=torch.float32)
    return one.new_zeros(classes).index_add_(0, labels, one) / max(1, len(labels))


def expected_mix(labels: Tensor, classes: int, even: bool) -> Tensor:
    """Class prior for other domains: that of the labels, or uniform if `even`. [N] -> [K]."""
    mix = class_mix(labels, classes)
    return torch.full_like(mix, 1 / classes) if even else mix


def consensus(
    distances: Tensor,
    opinion: Tensor,
    tau: float | Tensor,
    present: Tensor,
    share: float,
    *,
    known: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, uncertainty in nats, and share of views that predict the label. [R,N,K], [N,K] -> [N] x 3.

    p = share * opinion + (1 - share) * the views' mean of softmax(-dist / tau) over the present classes. Two opinions
    that disagree leave p uncertain, however sure each one is. A class in `known` [N] (-1: unknown) becomes the label,
    with zero uncertainty.
    """
    scores = -widen(distances) / tau
    views = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(-1)
    mean = torch.lerp(views.mean(0), opinion.to(views.dtype), share)
    if known is not None:
        stated = torch.nn.functional.one_hot(known.clamp_min(0), mean.shape[-1]).to(mean.dtype)
        mean = torch.where((known >= 0)[:, None], stated, mean)
    labels, uncertainty = mean.argmax(-1), torch.special.entr(mean).sum(-1)
    return labels, uncertainty, (views.argmax(-1) == labels).to(mean.dtype).mean(0)
