"""Batch norm synchronised over processes, or evaluated with the statistics of the batch itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from proud.errors import UserError

BatchNorm = nn.modules.batchnorm._BatchNorm
Sum = Callable[[Tensor], Tensor]  # over processes, with gradient


def has_batch_norm(network: nn.Module) -> bool:
    return any(isinstance(module, BatchNorm) for module in network.modules())


# ---- synchronised over processes


class WithActivation(nn.Module):
    """timm's batch norms with an activation apply it, and drop blocks, after the normalisation."""

    act: nn.Module
    drop: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


@torch.no_grad()
def update_running(norm: BatchNorm, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Running statistics from those of a batch of `count` values."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.detach(), share)
    norm.running_var.lerp_(variance.detach() * (count / (count - 1)), share)


def sync_batch_norms(network: nn.Module, total: Sum) -> None:
    """In place; names and values of all weights stay, so a checkpoint fits any number of processes.

    torch's own SyncBatchNorm on CUDA; on the CPU, where it has none, the same by sums over all processes.
    """
    from timm.layers import BatchNormAct2d, convert_sync_batchnorm  # noqa: PLC0415

    if any(parameter.is_cuda for parameter in network.parameters()):
        convert_sync_batchnorm(network)
        return
    kinds = {nn.BatchNorm1d: SyncedBatchNorm, nn.BatchNorm2d: SyncedBatchNorm, BatchNormAct2d: SyncedBatchNormAct}
    for module in [module for module in network.modules() if isinstance(module, BatchNorm)]:
        if type(module) not in kinds:
            raise UserError(
                f"This network's batch norm ({type(module).__name__}) cannot be synchronised on the CPU: start it "
                "without torchrun."
            )
        module.__class__ = kinds[type(module)]
        cast(SyncedBatchNorm, module).total = total


class SyncedBatchNorm(BatchNorm):
    """Statistics of the global batch: a mean, then a variance about it, from sums over all processes."""

    total: Sum

    def _check_input_dim(self, x: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        dims = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count = self.total(wide.new_tensor(x.numel() // x.shape[1]))
        mean = self.total(wide.sum(dims)) / count
        centred = wide - mean.view(shape)
        variance = self.total(centred.square().sum(dims)) / count
        if self.track_running_stats:
            update_running(self, mean, variance, count.clamp_min(2))
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(x.dtype)


class SyncedBatchNormAct(WithActivation, SyncedBatchNorm):
    pass


# ---- evaluation with the batch's statistics


@contextmanager
def evaluating(network: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """Evaluation mode, with the running statistics or with those of each batch. Restores the network.

    A batch norm without running statistics uses the batch's in evaluation mode too, where processes that share the
    network do not wait for each other.
    """
    was_training = network.training
    network.eval()
    norms = [module for module in network.modules() if isinstance(module, BatchNorm)] if batch_statistics else []
    running = [(norm.running_mean, norm.running_var) for norm in norms]
    for norm in norms:
        norm.running_mean = norm.running_var = None
    try:
        yield
    finally:
        for norm, (mean, variance) in zip(norms, running, strict=True):
            norm.running_mean, norm.running_var = mean, variance
        network.train(was_training)
