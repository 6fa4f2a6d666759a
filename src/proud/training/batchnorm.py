"""Batch norm over a batch that several processes share: torch's own on CUDA, and the same by all-reduced sums here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.nets.batch_norm import ActivationBehind, BlendedBatchNorm, remember
from proud.distributed.collectives import summed


def share_batch_norms(network: nn.Module) -> None:
    """In place; names and values of all weights stay, so that a checkpoint fits any number of processes."""
    from timm.layers import BatchNormAct2d, convert_sync_batchnorm

    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    blended = [norm for norm in norms if isinstance(norm, BlendedBatchNorm)]
    for norm in blended:
        norm.shared = True
    if blended and len(blended) == len(norms):
        return
    if blended:
        raise UserError(
            "Processes cannot share this network, some of whose batch norms have no images to look at: start it "
            "without torchrun, or with --own-share 0."
        )
    if any(parameter.is_cuda for parameter in network.parameters()):
        convert_sync_batchnorm(network)
        return
    kinds = {
        nn.BatchNorm1d: SharedBatchNorm,
        nn.BatchNorm2d: SharedBatchNorm,
        BatchNormAct2d: SharedBatchNormAct,
    }
    for module in norms:
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
        if self.track_running_stats:
            remember(self, mean, variance, count.clamp_min(2))
        out = centred * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            out = out * self.weight.view(shape) + self.bias.view(shape)
        return out.to(x.dtype)


class SharedBatchNormAct(ActivationBehind, SharedBatchNorm):
    pass
