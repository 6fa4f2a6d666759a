"""SampleMatch, UDMix (Eq. 6, 7) and feature mixup. Uniform random numbers are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from proud.ops._shared import per_sample, widen

_LOGIT_LIMIT = 40.0  # float64 resolves no uniform number beyond this logit
_TABLE_CELLS = 16384


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """Rows by class: those of class k are order[start[k] : start[k] + count[k]]."""

    order: Tensor  # [N] int64, row numbers sorted by class
    start: Tensor  # [K] int64
    count: Tensor  # [K] int64


def certainty_ratio(uncertainty: Tensor, tau: float | Tensor) -> Tensor:
    """lambda_eps = sigmoid(-eps / tau), at most 0.5. [N] -> [N]."""
    return torch.sigmoid(-uncertainty / tau)


def mixing_ratio(uncertainty: Tensor, uniform: Tensor, tau: float | Tensor, threshold: float | Tensor) -> Tensor:
    """Eq. 7: a uniform lambda where lambda_eps > threshold, else lambda_eps. [N], [...,N] -> [...,N]."""
    ratio = certainty_ratio(uncertainty, tau)
    return torch.where(ratio > threshold, uniform.to(ratio.dtype), ratio)


def ud_mix(x_labeled: Tensor, x_unlabeled: Tensor, ratio: Tensor) -> Tensor:
    """Eq. 6: ratio x_u + (1 - ratio) x_l. [N,...], [N,...], [N] -> [N,...]."""
    return torch.lerp(x_labeled, x_unlabeled, per_sample(ratio.to(x_unlabeled.dtype), x_unlabeled))


def class_index(labels: Tensor, num_classes: int) -> ClassIndex:
    """Index of the labeled rows by class. [N] -> ClassIndex."""
    if bool(((labels < 0) | (labels >= num_classes)).any()):
        raise ValueError(f"labels must be in 0..{num_classes - 1}, found {int(labels.min())}..{int(labels.max())}")
    count = torch.bincount(labels, minlength=num_classes)
    missing = (count == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"the labeled domain has no image of class {', '.join(map(str, missing))}: "
            "SampleMatch needs at least one image of every class"
        )
    return ClassIndex(torch.argsort(labels, stable=True), count.cumsum(0) - count, count)


def sample_match(labels: Tensor, index: ClassIndex, uniform: Tensor) -> Tensor:
    """SampleMatch: a labeled row of the same class, the floor(uniform count)-th of it. [N], [N] -> [N]."""
    count = index.count[labels]
    offset = (uniform * count).long().minimum(count - 1)
    return index.order[index.start[labels] + offset]


def mixup(features: Tensor, partner: Tensor, ratio: Tensor, among: Tensor | None = None) -> Tensor:
    """Feature mixup: ratio z + (1 - ratio) z[partner], or among[partner] if given. [N,d], [N] -> [N,d]."""
    partners = (features if among is None else among)[partner]
    return torch.lerp(partners, features, per_sample(ratio.to(features.dtype), features))


def beta_quantile(uniform: Tensor, a: float) -> Tensor:
    """Quantile of Beta(a, a), a >= 0.1, accurate to about 1e-5: turns uniform draws into Beta draws. Any shape.

    Linear interpolation in a table over logit(uniform), where the quantile is smooth up to both ends. The table is
    computed on the host at the first call for each a, dtype and device; do not call it in compiled code.
    """
    wide = widen(uniform)
    table = _beta_table(a, wide.dtype, wide.device)
    cells_per_unit = _TABLE_CELLS / (2 * _LOGIT_LIMIT)
    position = (wide.logit().clamp(-_LOGIT_LIMIT, _LOGIT_LIMIT) + _LOGIT_LIMIT) * cells_per_unit
    cell = position.long().clamp(0, _TABLE_CELLS - 1)
    return torch.lerp(table[cell], table[cell + 1], position - cell).to(uniform.dtype)


@lru_cache
def _beta_table(a: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Quantiles at equal steps of the logit, symmetric about 1/2, with ends exactly 0 and 1."""
    from scipy.special import betaincinv  # noqa: PLC0415

    logits = np.linspace(-_LOGIT_LIMIT, 0, _TABLE_CELLS // 2 + 1)
    lower = betaincinv(a, a, 1 / (1 + np.exp(-logits)))
    lower[0] = 0
    with torch.inference_mode(False):
        return torch.tensor(np.concatenate([lower, 1 - lower[-2::-1]]), dtype=dtype, device=device)
