"""Sums over the processes of one run, and one clear error if a process is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from proud.errors import UserError


@contextmanager
def lost_rank_errors() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # gloo and NCCL have no error type for this
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"rank {os.environ.get('RANK', '?')}: another process of this run has ended or does not respond "
            f"({reason[:120]}). The last checkpoint is intact: continue with the same command and --resume."
        ) from error


def is_network_error(error: RuntimeError) -> bool:
    """Whether an error within a step comes from the processes' connection and not from the step itself."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def all_reduced(value: Tensor) -> Tensor:
    """The sum over all processes. No gradient."""
    total = value.detach().clone(memory_format=torch.contiguous_format)
    with lost_rank_errors():
        dist.all_reduce(total)
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return all_reduced(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return all_reduced(gradients[0])


def summed(value: Tensor) -> Tensor:
    """The sum over all processes, each of which uses it: gradients are summed likewise."""
    return _Sum.apply(value)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        whole = rows.new_zeros((dist.get_world_size(), *rows.shape))
        whole[dist.get_rank()] = rows
        return _sum_in_float(whole).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = _sum_in_float(gradients[0])
        return total.unflatten(0, (dist.get_world_size(), -1))[dist.get_rank()]


def gathered(rows: Tensor) -> Tensor:
    """Everyone's rows, rank after rank. A row's gradient is the sum over all ranks.

    Implemented as a sum with zeros elsewhere: exact, and available for every type and backend.
    """
    return _Gather.apply(rows)


def _sum_in_float(value: Tensor) -> Tensor:
    """gloo cannot add bf16."""
    wide = value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    return all_reduced(wide).to(value.dtype)
