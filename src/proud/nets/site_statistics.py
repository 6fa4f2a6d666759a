"""A network that answers twice: as it is, and with the batch statistics of a site.

Only the batch norms of the last stage get the site's statistics, so that both answers share all layers before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from proud.nets.batch_norm import BatchNorm
from proud.nets.models import Net


class TwoNorms(nn.Module):
    """One batch norm for the first half of a batch, another one for the second."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        return torch.cat([self.first(first), self.second(second)])


class SiteNet(Net):
    """Its features [N,2d] and logits [N,2K] are those of the network itself, then those for the site."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = super().forward(x)  # of twice as many rows, from the last stage on
        return torch.cat(features.chunk(2), 1), torch.cat(logits.chunk(2), 1)


def last_stage(backbone: nn.Module) -> str:
    """The module's name, as timm's networks state it; empty if they do not."""
    stages: Any = getattr(backbone, "feature_info", None)
    name = stages[-1].get("module", "") if isinstance(stages, list | tuple) and stages else ""
    return name if name in dict(backbone.named_modules()) else ""


def late_norms(backbone: nn.Module) -> list[str]:
    """Names of the batch norms in the last stage and after it."""
    names = [name for name, _ in backbone.named_modules()]
    start = names.index(last_stage(backbone)) if last_stage(backbone) else len(names)
    return [name for name in names[start:] if isinstance(backbone.get_submodule(name), BatchNorm)]


def may_use_site_statistics(network: Net) -> bool:
    """Whether there are running statistics that a site's own can replace in part."""
    norms = [network.backbone.get_submodule(name) for name in late_norms(network.backbone)]
    return bool(norms) and all(cast(BatchNorm, norm).running_mean is not None for norm in norms)


@torch.no_grad()
def with_site_statistics(network: Net, batches: Iterable[Tensor], share: float) -> SiteNet:
    """A copy. Its second answer uses, in the last stage, statistics of which the mean over these batches has this
    share, and training's have the rest."""
    copy, names = deepcopy(network).eval(), late_norms(network.backbone)
    norms = [cast(BatchNorm, copy.backbone.get_submodule(name)) for name in names]
    trained = deepcopy(norms)
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    for batch in batches:
        copy(batch)
    for name, norm, before in zip(names, norms, trained, strict=True):
        cast(Tensor, norm.running_mean).lerp_(cast(Tensor, before.running_mean), 1 - share)
        cast(Tensor, norm.running_var).lerp_(cast(Tensor, before.running_var), 1 - share)
        parent, _, child = name.rpartition(".")
        setattr(copy.backbone.get_submodule(parent), child, TwoNorms(before, norm))
    copy.backbone.get_submodule(last_stage(network.backbone)).register_forward_pre_hook(twice)
    copy.__class__ = SiteNet
    return cast(SiteNet, copy.eval())


def twice(module: nn.Module, given: tuple[Any, ...]) -> Any:
    """Some stages take several maps."""
    maps = given[0]
    return torch.cat([maps, maps]) if isinstance(maps, Tensor) else ([torch.cat([each, each]) for each in maps],)
