"""Pseudo-labels on which prototypes and classifier decide together, with classes about as frequent as expected."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from proud.ops._shared import widen

_ROUNDS = 3
_LEAST = 1e-6


def class_mix(labels: Tensor, classes: int) -> Tensor:
    """The classes' shares among the labels. [N] -> [K]."""
    one = torch.ones_like(labels, dtype=torch.float32)
    return one.new_zeros(classes).index_add_(0, labels, one) / max(1, len(labels))


def expected_mix(labels: Tensor, classes: int, even: bool) -> Tensor:
    """How often classes are expected to come up in other domains: as in the labels, or all alike. [N] -> [K]."""
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
    reduce: Callable[[Tensor], Tensor] = lambda total: total,
) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, their uncertainty in nats, and the share of views that find the label alone. [R,N,K], [R,N,K] -> [N] x 3.

    A view's opinion is softmax(-dist / tau + classifier log p) over the present classes, the image's the mean of its
    views'. With `balance`, classes that come up more often in the domain than in `prior` [K] are held back: three
    rounds of p_k (prior_k / mean p_k)^balance. Where `known` [N] holds a class and not -1, it is the label, without
    uncertainty, and counts as that class. `reduce` adds sums over processes.
    """
    scores = -widen(distances) / tau + classifier * widen(probs).clamp_min(_LEAST).log()
    opinions = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(-1)
    mean = opinions.mean(0)
    if known is not None:  # no rounds change it, and it counts in them
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
    return labels, uncertainty, (opinions.argmax(-1) == labels).to(mean.dtype).mean(0)
