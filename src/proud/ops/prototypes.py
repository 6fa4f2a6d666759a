"""Domain-aware prototypes and pseudo-labels: Eq. 1, 2, 3, 5 and the ensemble of the supplementary.

A prototype is a sum divided by a count, so chunks and processes add their sums and divide once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proud.ops._shared import wide_matmul, widen

Chunks = Callable[[], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """What DaPP finds for one domain of N images and K classes."""

    labels: Tensor  # [N] int64
    uncertainty: Tensor  # [N], nats
    prototypes: Tensor  # [K,d], zero rows where absent
    present: Tensor  # [K] bool: some image carried this label when the prototypes were built
    agreement: Tensor | None = None  # [N]: share of the views that give this label alone


def cosine_distance(features: Tensor, prototypes: Tensor) -> Tensor:
    """dist = 1 - cos, in [0, 2]; 1 to a zero vector. [N,d], [K,d] -> [N,K]."""
    cosine = wide_matmul(_unit(features), _unit(prototypes).mT)
    return (1 - cosine).clamp(0, 2).to(torch.promote_types(features.dtype, prototypes.dtype))


def nearest_prototype(features: Tensor, prototypes: Tensor, present: Tensor | None = None) -> Tensor:
    """Eq. 2: the class of the nearest prototype among those present; the lowest on a tie. [N,d], [K,d] -> [N]."""
    distances = cosine_distance(features, prototypes)
    if present is not None:
        distances = distances.masked_fill(~present, torch.inf)
    return _first_max(-distances)


def hard_prototypes(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Eq. 3: means of the features under each label. [N,d], [N] -> [K,d] (zero without members), [K] bool."""
    sums, counts = _class_sums(features, _membership(labels, num_classes))
    return _means(sums, counts).to(features.dtype), counts > 0


def uncertainty(distances: Tensor, tau: float | Tensor, present: Tensor | None = None) -> Tensor:
    """Eq. 5: entropy in nats of softmax(-dist / tau) over the present classes. [N,K] -> [N]."""
    return _ensemble_uncertainty(distances.unsqueeze(0), tau, present)


def _identity(x: Tensor) -> Tensor:
    return x


@torch.no_grad()
def dapp(
    chunks: Chunks,
    tau: float | Tensor,
    reduce: Callable[[Tensor], Tensor] = _identity,
    known: Tensor | None = None,
) -> PseudoLabels:
    """DaPP over R views: soft prototypes, labels, hard prototypes, labels again.

    Three passes over chunks ([R,n,d], [R,n,K]), of which only sums and counts are kept. `chunks()` starts a pass;
    `reduce` adds a sum over processes, each of which keeps its own images' labels. The views vote without a
    temperature; tau shapes the uncertainty alone. Where `known` [N] holds a class and not -1, it is the label in every
    step, without uncertainty.
    """

    def pieces() -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        start = 0
        for features, probs in chunks():
            end = start + features.shape[1]
            yield features, probs, None if known is None else known[start:end]
            start = end

    soft, _ = _means_of_chunks(
        (
            _class_sums(features.flatten(0, 1), _known_probs(probs, stated).flatten(0, 1))
            for features, probs, stated in pieces()
        ),
        reduce,
    )
    classes = len(soft)

    def hard_sums(features: Tensor, stated: Tensor | None) -> tuple[Tensor, Tensor]:
        first = _known_labels(_vote(cosine_distance(widen(features), soft)), stated)
        return _class_sums(features.flatten(0, 1), _membership(first.repeat(len(features)), classes))

    hard, counts = _means_of_chunks((hard_sums(features, stated) for features, _, stated in pieces()), reduce)
    present = counts > 0
    found = [_decide(cosine_distance(widen(features), hard), tau, present, stated) for features, _, stated in pieces()]
    labels, entropy, agreement = (torch.cat(parts) for parts in zip(*found, strict=True))
    return PseudoLabels(labels, entropy, hard, present, agreement)


def merge_prototypes(domains: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """C-bar of Eq. 4: the mean over the domains that have the class, zero if none has. ([K,d], [K])... -> [K,d]."""
    prototypes = torch.stack([prototypes for prototypes, _ in domains])
    present = torch.stack([present for _, present in domains]).unsqueeze(-1)
    count = present.sum(0).clamp_min(1)
    return prototypes.masked_fill(~present, 0).sum(0) / count


def _unit(x: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero and passes no gradient."""
    x = widen(x)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norm.masked_fill(norm == 0, torch.inf)


def _membership(labels: Tensor, num_classes: int) -> Tensor:
    """One-hot rows. [N] -> [N,K] bool."""
    return labels.unsqueeze(-1) == torch.arange(num_classes, device=labels.device)


def _class_sums(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Numerators and denominators of Eq. 1 and 3. [N,d], [N,K] -> [K,d], [K]."""
    weights = weights.to(torch.promote_types(weights.dtype, widen(features).dtype))
    return wide_matmul(weights.mT, features), weights.sum(0)


def _means(sums: Tensor, totals: Tensor) -> Tensor:
    """Sums over totals, zero where the total is. [K,d], [K] -> [K,d]."""
    return sums / totals.clamp_min(torch.finfo(totals.dtype).tiny).unsqueeze(-1)


def _means_of_chunks(
    parts: Iterable[tuple[Tensor, Tensor]], reduce: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Means and totals over all chunks and processes."""
    sums, totals = functools.reduce(lambda total, part: (total[0] + part[0], total[1] + part[1]), parts)
    totals = reduce(totals)
    return _means(reduce(sums), totals), totals


def _mask_absent(logits: Tensor, present: Tensor | None) -> Tensor:
    """Absent classes get the lowest finite logit: probability 0, and no NaN even if every class is absent."""
    return logits if present is None else logits.masked_fill(~present, torch.finfo(logits.dtype).min)


def _first_max(scores: Tensor) -> Tensor:
    """argmax in which scores that differ by rounding alone tie, and the lowest class wins. [N,K] -> [N]."""
    rounding = 16 * torch.finfo(scores.dtype).eps
    return (scores >= scores.amax(-1, keepdim=True) - rounding).int().argmax(-1)


def _vote(distances: Tensor, present: Tensor | None = None) -> Tensor:
    """Supplementary: argmax_k of the views' summed softmax(-dist), the lowest on a tie. [R,N,K] -> [N]."""
    return _first_max(_mask_absent(-distances, present).softmax(-1).sum(0))


def _decide(
    distances: Tensor, tau: float | Tensor, present: Tensor, known: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Label, uncertainty, and the share of views that find the label alone. [R,N,K] -> [N], [N], [N]."""
    labels = _known_labels(_vote(distances, present), known)
    entropy = _ensemble_uncertainty(distances, tau, present)
    alone = _first_max(_mask_absent(-distances, present))
    return labels, entropy if known is None else entropy.masked_fill(known >= 0, 0), (alone == labels).float().mean(0)


def _known_labels(labels: Tensor, known: Tensor | None) -> Tensor:
    return labels if known is None else torch.where(known >= 0, known, labels)


def _known_probs(probs: Tensor, known: Tensor | None) -> Tensor:
    """[R,N,K] with one-hot rows where the label is known."""
    if known is None:
        return probs
    return torch.where((known >= 0).unsqueeze(-1), _membership(known, probs.shape[-1]).to(probs.dtype), probs)


def _ensemble_uncertainty(distances: Tensor, tau: float | Tensor, present: Tensor | None) -> Tensor:
    """Entropy in nats of the views' mean softmax(-dist / tau). [R,N,K] -> [N]."""
    log_probs = _mask_absent(-widen(distances) / tau, present).log_softmax(-1)
    log_mean = log_probs.logsumexp(0) - math.log(len(distances))
    terms = log_mean.exp() * log_mean
    if present is not None:
        terms = terms.masked_fill(~present, 0)
    return terms.sum(-1).neg().clamp_min(0).to(distances.dtype)
