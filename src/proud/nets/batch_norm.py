"""Everything about batch norm: blended with an image's own statistics, synchronised over processes, or evaluated with
the statistics of the batch itself. No other file deals with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from proud.errors import UserError
from proud.ops.norm import blended_statistics, image_statistics, pooled_statistics

BatchNorm = nn.modules.batchnorm._BatchNorm
Network = TypeVar("Network", bound=nn.Module)
BLENDED = "blended."
"""before the names of a blended batch norm's tensors: a plain one must not take them for its own"""
Sum = Callable[[Tensor], Tensor]  # over processes, with gradient


def plain_name(name: str) -> str:
    """Of a tensor in a network whose batch norms are not blended."""
    return name.replace("." + BLENDED, ".")


def has_batch_norm(network: nn.Module) -> bool:
    return any(isinstance(module, BatchNorm) for module in network.modules())


# ---- blended with an image's own statistics


class BlendedBatchNorm(nn.BatchNorm2d):
    """Normalises each image by a blend of the batch's (or running) statistics and, to a `share`, its own: those of an
    unseen domain differ from those of training."""

    share: float = 0.0
    total: Sum | None = None  # set if several processes share a batch

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix + BLENDED, keep_vars)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """Also from a plain batch norm."""
        for name in (*self._parameters, *self._buffers):
            if prefix + name in state_dict:
                state_dict[prefix + BLENDED + name] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix + BLENDED, *more)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        own_mean, own_variance = image_statistics(wide)
        if self.training or self.running_mean is None or self.running_var is None:
            mean, variance, images = self._of_batch(own_mean, own_variance)
            if self.training:
                update_running(self, mean, variance, images * x[0, 0].numel())
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
        if self.total is None or not self.training:
            return *pooled_statistics(means, variances), len(means)
        images = self.total(means.new_tensor(len(means)))
        mean = self.total(means.sum(0)) / images
        return mean, self.total((variances + (means - mean).square()).sum(0)) / images, images


class WithActivation(nn.Module):
    """timm's batch norms with an activation apply it, and drop blocks, after the normalisation."""

    act: nn.Module
    drop: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


class BlendedBatchNormAct(WithActivation, BlendedBatchNorm):
    pass


def blend_batch_norms(network: nn.Module, share: float) -> nn.Module:
    """In place, for all 2-d batch norms; the values of the weights stay."""
    from timm.layers import BatchNormAct2d  # noqa: PLC0415

    kinds = {nn.BatchNorm2d: BlendedBatchNorm, BatchNormAct2d: BlendedBatchNormAct}
    for module in network.modules():
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]
            cast(BlendedBatchNorm, module).share = share
    return network


@torch.no_grad()
def update_running(norm: BatchNorm, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Running statistics from those of a batch of `count` values."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.detach(), share)
    norm.running_var.lerp_(variance.detach() * (count / (count - 1)), share)


# ---- synchronised over processes


def sync_batch_norms(network: nn.Module, total: Sum) -> None:
    """In place; names and values of all weights stay, so a checkpoint fits any number of processes.

    torch's own SyncBatchNorm on CUDA; on the CPU, where it has none, the same by sums over all processes.
    """
    from timm.layers import BatchNormAct2d, convert_sync_batchnorm  # noqa: PLC0415

    norms = [module for module in network.modules() if isinstance(module, BatchNorm)]
    blended = [norm for norm in norms if isinstance(norm, BlendedBatchNorm)]
    for norm in blended:
        norm.total = total
    if blended and len(blended) == len(norms):
        return
    if blended:
        raise UserError(
            "This network has batch norms that cannot blend image statistics across processes: start it without "
            "torchrun, or with --own-share 0."
        )
    if any(parameter.is_cuda for parameter in network.parameters()):
        convert_sync_batchnorm(network)
        return
    kinds = {nn.BatchNorm1d: SyncedBatchNorm, nn.BatchNorm2d: SyncedBatchNorm, BatchNormAct2d: SyncedBatchNormAct}
    for module in norms:
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


# ---- the statistics of a site


def may_use_site_statistics(network: nn.Module) -> bool:
    """Networks whose batch norms are blended follow every image already: there, a site's statistics do harm."""
    norms = [module for module in network.modules() if isinstance(module, BatchNorm)]
    tracked = all(norm.running_mean is not None for norm in norms)
    return bool(norms) and tracked and not any(isinstance(norm, BlendedBatchNorm) for norm in norms)


@torch.no_grad()
def with_site_statistics(network: Network, batches: Iterable[Tensor], share: float) -> Network:
    """A copy of the network in which the mean statistics of these batches have this share, and training's the rest."""
    copy = deepcopy(network).eval()
    norms = [module for module in copy.modules() if isinstance(module, BatchNorm)]
    before = [(cast(Tensor, norm.running_mean).clone(), cast(Tensor, norm.running_var).clone()) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    for batch in batches:
        copy(batch)
    for norm, (mean, variance) in zip(norms, before, strict=True):
        cast(Tensor, norm.running_mean).lerp_(mean, 1 - share)
        cast(Tensor, norm.running_var).lerp_(variance, 1 - share)
    return copy.eval()
