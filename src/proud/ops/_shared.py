"""Shared helpers of `ops`: float32 arithmetic under autocast, cached device constants, broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """To float32 or wider: half precision is too coarse for sums and small temperatures."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def wide_matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32 or wider, also inside an autocast region."""
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    with torch.autocast(a.device.type, enabled=False):
        return a.to(dtype) @ b.to(dtype)


def constant(values: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    """[n] values in the dtype and on the device of `like`.

    Cached per dtype and device; under a compiler, which folds constants itself, the cache is bypassed.
    """
    if isinstance(values, Tensor):
        return values.to(like)
    if torch.compiler.is_compiling():
        return torch.stack([torch.full((), value, dtype=like.dtype, device=like.device) for value in values])
    return _constant(tuple(values), like.dtype, like.device)


@lru_cache(maxsize=256)
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def per_channel(values: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    """[C] -> [C,1,1] for broadcasting over images."""
    return constant(values, like).reshape(-1, 1, 1)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """[N] -> [N,1,...] for broadcasting over samples of any shape; a scalar stays a scalar."""
    return values.reshape(values.shape + (1,) * (like.ndim - 1)) if values.ndim else values


GREY = (0.299, 0.587, 0.114)  # ITU-R 601


def grey_of(x: Tensor) -> Tensor:
    """The grey value of every pixel. [N,3,H,W] -> [N,1,H,W]."""
    return (x * per_channel(GREY, x)).sum(1, keepdim=True)
