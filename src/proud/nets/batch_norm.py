"""Batch norm in which every image also brings its own statistics: an unseen domain's are unlike those of training."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from proud.ops.norm import blended_statistics, own_statistics, pooled_statistics


class BlendedBatchNorm(nn.BatchNorm2d):
    """Normalises each image by a blend of the batch's (or running) statistics and, to a `share`, its own."""

    share: float = 0.0
    shared: bool = False  # one batch over several processes

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        own_mean, own_variance = own_statistics(wide)
        if self.training or self.running_mean is None or self.running_var is None:
            mean, variance, images = self._of_batch(own_mean, own_variance)
            if self.training:
                remember(self, mean, variance, images * x[0, 0].numel())
        else:
            mean, variance = self.running_mean, self.running_var
        mean, variance = blended_statistics(own_mean, own_variance, mean, variance, self.share)
        scale = (variance + self.eps).rsqrt()
        if self.affine:
            scale = scale * self.weight
        shift = (self.bias if self.affine else 0) - mean * scale
        return torch.addcmul(shift[..., None, None], wide, scale[..., None, None]).to(x.dtype)

    def _of_batch(self, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor, int | Tensor]:
        """Mean, variance and number of images."""
        if not (self.shared and self.training):
            return *pooled_statistics(means, variances), len(means)
        from proud.distributed.collectives import summed

        images = summed(means.new_tensor(len(means)))
        mean = summed(means.sum(0)) / images
        return mean, summed((variances + (means - mean).square()).sum(0)) / images, images


class ActivationBehind(nn.Module):
    """What timm's batch norms with an activation do with the normalised maps."""

    act: nn.Module
    drop: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class BlendedBatchNormAct(ActivationBehind, BlendedBatchNorm):
    pass


@torch.no_grad()
def remember(norm: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """A batch's statistics, of so many values, into the running ones."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.detach(), share)
    norm.running_var.lerp_(variance.detach() * (count / (count - 1)), share)


def blend_norms(network: nn.Module, share: float) -> nn.Module:
    """In place, for all batch norms of images; names and values of the weights stay."""
    from timm.layers import BatchNormAct2d

    kinds = {nn.BatchNorm2d: BlendedBatchNorm, BatchNormAct2d: BlendedBatchNormAct}
    for module in network.modules():
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]
            cast(BlendedBatchNorm, module).share = share
    return network
