"""Which images a person should label next: uncertain ones, that stand for many others, and that differ."""

from __future__ import annotations

import torch
from torch import Tensor

NEIGHBOURS = 10
COSINES = 1 << 26  # in memory at a time


def density(unit: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """How close an image's nearest neighbours are: their mean cosine, mapped to [0, 1]. Unit rows [N,d] -> [N]."""
    count = min(neighbours, len(unit) - 1)
    if count < 1:
        return torch.ones(len(unit))
    found = []
    chunk = max(1, min(1024, COSINES // len(unit)))
    for start in range(0, len(unit), chunk):
        cosine = unit[start : start + chunk] @ unit.T
        cosine[torch.arange(len(cosine)), torch.arange(start, start + len(cosine))] = -torch.inf  # not itself
        found.append(cosine.topk(count, dim=1).values.mean(1))
    return ((1 + torch.cat(found)) / 2).clamp(0, 1)


def choose_images(features: Tensor, uncertainty: Tensor, k: int, known: Tensor | None = None) -> Tensor:
    """Rows of up to k images, the most valuable first. [N,d], [N] -> [k].

    An image's worth is uncertainty × density. Each pick maximises worth × cosine distance to the nearest pick so far
    (greedy k-centre, weighted), so that k labels do not all fall into one corner. Images with a known label are
    not asked for, but count as picked.
    """
    unit = torch.nn.functional.normalize(features.float() - features.float().mean(0), dim=1)
    worth = (uncertainty.float() + 1e-6) * (density(unit) + 1e-6)
    apart = torch.ones(len(unit))
    free = torch.ones(len(unit), dtype=torch.bool)
    if known is not None and bool((known >= 0).any()):
        free &= known < 0
        apart = (1 - unit @ unit[known >= 0].T).amin(1).clamp(0, 2)
    chosen: list[int] = []
    for _ in range(min(k, int(free.sum()))):
        row = int((worth * (apart + 1e-9)).masked_fill(~free, -1).argmax())
        chosen.append(row)
        free[row] = False
        apart = torch.minimum(apart, (1 - unit @ unit[row]).clamp(0, 2))
    return torch.tensor(chosen, dtype=torch.int64)
