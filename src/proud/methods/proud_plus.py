"""ProUD with what the paper does not have: centred features, averaged weights, a merging loss that trusts with care."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proud.lazy import ops, torch
from proud.methods.ema import EMAMethod
from proud.methods.proud import ProUD, ProUDConfig

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context
    from proud.models import Net


@dataclass(frozen=True)
class ProUDPlusConfig(ProUDConfig):
    neck: bool = True
    """batch-normalise the features, so that they have no common mean and angles between them tell more"""
    ema_decay: float = 0.99
    """decay of the moving average of the weights, which pseudo-labels, is evaluated and saved; 0 turns it off"""
    labeled_weight: float = 1.0
    """weight of a cross-entropy on the labeled images themselves, which pass through the network anyway"""
    weighted_pml: bool = True
    """an unlabeled image counts in the merging loss as much as its pseudo-label is certain"""


class ProUDPlus(ProUD, EMAMethod):
    Config = ProUDPlusConfig
    config: ProUDPlusConfig  # type: ignore[assignment]

    def __init__(self, config: ProUDPlusConfig, context: Context) -> None:
        super().__init__(config, replace(context, spec=replace(context.spec, neck=config.neck)))

    def labeler(self) -> Net:
        return self.average

    def merging_terms(self, features: Tensor, labels: Tensor, uncertainty: Tensor) -> dict[str, tuple[float, Tensor]]:
        config, batch = self.config, len(labels)
        repeats = len(features) // batch
        certainty = 2 * ops.certainty_ratio(uncertainty, config.tau_ratio)  # 0 to 1; labeled images are certain
        weights = (
            torch.cat([torch.ones_like(certainty), certainty]).repeat(repeats // 2) if config.weighted_pml else None
        )
        pml = ops.prototype_merging_loss(features, labels.repeat(repeats), self.merged, weights=weights)
        labeled = torch.cat([part for part in features.split(batch)[::2]])
        cross_entropy = torch.nn.functional.cross_entropy(self.net.head(labeled), labels.repeat(repeats // 2))
        return {"pml": (config.alpha, pml), "labeled": (config.labeled_weight, cross_entropy)}
