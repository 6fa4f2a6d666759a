"""Selection of images to label next: uncertain, representative and diverse."""

from __future__ import annotations

import torch
from torch import Tensor

NEIGHBOURS = 10
COSINES = 1 << 26  # most cosines in memory at a time


def density(unit: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Mean cosine to the nearest neighbours, mapped to [0, 1]. Unit rows [N,d] -> [N]."""
    count = min(neighbours, len(unit) - 1)
    if count < 1:
        return torch.ones(len(unit))
    means = []
    chunk = max(1, min(1024, COSINES // len(unit)))
    for start in range(0, len(unit), chunk):
        cosine = unit[start : start + chunk] @ unit.T
        cosine[torch.arange(len(cosine)), torch.arange(start, start + len(cosine))] = -torch.inf  # not itself
        means.append(cosine.topk(count, dim=1).values.mean(1))
    return ((1 + torch.cat(means)) / 2).clamp(0, 1)


def choose_images(features: Tensor, uncertainty: Tensor, k: int, known: Tensor | None = None) -> Tensor:
    """Rows of up to k images, the most valuable first. [N,d], [N] -> [k].

    Weighted greedy k-centre: each pick maximises uncertainty × density × cosine distance to the nearest earlier pick.
    Images with a known label are never picked, but count as earlier picks.
    """
    unit = torch.nn.functional.normalize(features.float() - features.float().mean(0), dim=1)
    value = (uncertainty.float() + 1e-6) * (density(unit) + 1e-6)
    distance = torch.ones(len(unit))
    free = torch.ones(len(unit), dtype=torch.bool)
    if known is not None and bool((known >= 0).any()):
        free &= known < 0
        distance = (1 - unit @ unit[known >= 0].T).amin(1).clamp(0, 2)
    chosen: list[int] = []
    for _ in range(min(k, int(free.sum()))):
        row = int((value * (distance + 1e-9)).masked_fill(~free, -1).argmax())
        chosen.append(row)
        free[row] = False
        distance = torch.minimum(distance, (1 - unit @ unit[row]).clamp(0, 2))
    return torch.tensor(chosen, dtype=torch.int64)
