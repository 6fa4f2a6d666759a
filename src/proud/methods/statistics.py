"""Which batch-norm statistics a full pass uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from proud.lazy import torch

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def batch_statistics(net: nn.Module, own: bool) -> Iterator[None]:
    """Evaluate with the running statistics or, with `own`, with those of each batch. Leaves the net as it was."""
    was_training = net.training
    net.eval()
    norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)] if own else []
    for norm in norms:
        norm.train()
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        net.train(was_training)
