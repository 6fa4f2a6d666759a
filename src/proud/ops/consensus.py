"""Pseudo-labels from prototypes and classifier together, with class frequencies close to a prior."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from proud.ops._shared import widen

_ROUNDS = 3
_LEAST = 1e-6


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
    probs: Tensor,
    tau: float | Tensor,
    present: Tensor,
    *,
    classifier: float,
    balance: float = 0.0,
    prior: Tensor | None = None,
    known: Tensor | None = None,
    opinion: Tensor | None = None,
    weight: float = 0.5,
    reduce: Callable[[Tensor], Tensor] = lambda total: total,
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, uncertainty in nats, and share of views that predict the label. [R,N,K], [R,N,K] -> [N] x 3.

    A view predicts softmax(-dist / tau + classifier log p) over the present classes, an image the mean over its views.
    `opinion` [N,K], probabilities from elsewhere, gets the share `weight` of the mean. With `balance`, classes more
    frequent in the domain than in `prior` [K] are down-weighted: three rounds of p_k (prior_k / mean p_k)^balance. A
    class in `known` [N] (-1: unknown) becomes the label, with zero uncertainty, and counts in the frequencies. `reduce`
    sums over processes.
    """
    scores = -widen(distances) / tau + classifier * widen(probs).clamp_min(_LEAST).log()
    views = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(-1)
    mean = views.mean(0)
    if opinion is not None:
        mean = torch.lerp(mean, opinion.to(mean.dtype), weight)
    if known is not None:  # one-hot: unchanged by the rounds, but counted in them
        stated = torch.nn.functional.one_hot(known.clamp_min(0), mean.shape[-1]).to(mean.dtype)
        mean = torch.where((known >= 0)[:, None], stated, mean)
    if balance:
        assert prior is not None
        count = reduce(mean.new_full((), mean.shape[0]))
        for _ in range(_ROUNDS):
            share = reduce(mean.sum(0)) / count
            mean = mean * (prior.clamp_min(_LEAST) / share.clamp_min(_LEAST)) ** balance
            mean = mean / mean.sum(-1, keepdim=True).clamp_min(torch.finfo(mean.dtype).tiny)
    labels, uncertainty = mean.argmax(-1), torch.special.entr(mean).sum(-1)
    return labels, uncertainty, (views.argmax(-1) == labels).to(mean.dtype).mean(0)
