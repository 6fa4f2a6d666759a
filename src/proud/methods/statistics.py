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
    """Evaluate with the running statistics or, with `own`, with those of each batch. Leaves the net as it was.

    A batch norm that has no running statistics takes the batch's, also in evaluation, where several processes that
    share the network do not wait for each other.
    """
    was_training = net.training
    net.eval()
    norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)] if own else []
    running = [(norm.running_mean, norm.running_var) for norm in norms]
    for norm in norms:
        norm.running_mean = norm.running_var = None
    try:
        yield
    finally:
        for norm, (mean, variance) in zip(norms, running, strict=True):
            norm.running_mean, norm.running_var = mean, variance
        net.train(was_training)
