"""Batch norm over a batch that several processes share: torch's own on CUDA, and the same by all-reduced sums here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.norms import BlendedBatchNorm
from proud.training.collectives import summed


def share_batch_norms(network: nn.Module) -> None:
    """In place; names and values of all weights stay, so that a checkpoint fits any number of processes."""
    from timm.layers import BatchNormAct2d, convert_sync_batchnorm

    blended = [module for module in network.modules() if isinstance(module, BlendedBatchNorm)]
    for norm in blended:
        norm.shared = True
    if blended:
        return
    if any(parameter.is_cuda for parameter in network.parameters()):
        convert_sync_batchnorm(network)
        return
    kinds = {
        nn.BatchNorm1d: SharedBatchNorm,
        nn.BatchNorm2d: SharedBatchNorm,
        BatchNormAct2d: SharedBatchNormAct,
    }
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if type(module) not in kinds:
                raise UserError(
                    f"This network's batch norm ({type(module).__name__}) cannot be shared by processes on the CPU: "
                    "start it without torchrun."
                )
            module.__class__ = kinds[type(module)]


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Statistics of the global batch: a mean, then a variance about it, both from sums over all processes."""

    def _check_input_dim(self, x: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        dims = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count = summed(wide.new_tensor(x.numel() // x.shape[1]))
        mean = summed(wide.sum(dims)) / count
        centred = wide - mean.view(shape)
        variance = summed(centred.square().sum(dims)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp_min(1))
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


class SharedBatchNormAct(SharedBatchNorm):
    """timm's batch norm with an activation behind it."""

    act: nn.Module
    drop: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))
