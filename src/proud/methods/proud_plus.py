"""ProUD with what the paper does not have: centred features, averaged weights, a merging loss that trusts with care."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proud.lazy import ops, torch
from proud.methods.ema import EMAMethod
from proud.methods.proud import ProUD, ProUDConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from proud.methods.context import Context
    from proud.methods.proud import Chunk
    from proud.models import Net
    from proud.randomness import Randomness


@dataclass(frozen=True)
class ProUDPlusConfig(ProUDConfig):
    center: bool = True
    """take each domain's mean off its unit features before angles are measured: in DaPP and in the merging loss"""
    neck: bool = False
    """batch-normalise the features, in the classifier too"""
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
        rows, domains = len(context.unlabeled), 1 + len(context.unlabeled_names)
        self.centers = torch.zeros(domains, self.net.num_features, device=context.device)
        self.domain_of = torch.zeros(rows, dtype=torch.int64, device=context.device)

    def labeler(self) -> Net:
        return self.average

    # ---- centred features: a domain's own mean says nothing about classes

    def labeled_prototypes(self, random: Randomness) -> tuple[Tensor, Tensor]:
        prototypes, present = super().labeled_prototypes(random)
        if not self.config.center:
            return prototypes, present
        # the mean of centred features under a label is the label's prototype minus the mean, up to their lengths
        share = self.index.count / self.index.count.sum()
        self.centers[0] = (share[:, None] * prototypes).sum(0)
        return torch.nn.functional.normalize(prototypes - self.centers[0], dim=1), present

    def feature_chunks(self, purpose: str, start: int, size: int, random: Randomness) -> Callable[[], Iterable[Chunk]]:
        chunks = super().feature_chunks(purpose, start, size, random)
        if not self.config.center:
            return chunks
        domain = 1 + self.context.unlabeled.starts.index(start)
        total = sum((features.sum((0, 1)) for features, _ in chunks()), start=torch.zeros_like(self.centers[domain]))
        self.centers[domain] = self.sharing.sum(total) / (size * self.config.views)
        self.domain_of[start : start + size] = domain

        def centred() -> Iterable[Chunk]:
            for features, probs in chunks():
                yield torch.nn.functional.normalize(features - self.centers[domain], dim=-1), probs

        return centred

    def center(self) -> Tensor:
        """The mean over all domains: that of an unseen one is not known."""
        return self.centers.mean(0)

    def centred(self, features: Tensor, rows: Tensor) -> Tensor:
        """Training features, laid out as in `merging_terms`, without the means of their domains."""
        if not self.config.center:
            return features
        domains = torch.cat([torch.zeros_like(rows), self.domain_of[rows]]).repeat(len(features) // (2 * len(rows)))
        return torch.nn.functional.normalize(features, dim=1) - self.centers[domains]

    # ---- the merging loss trusts certain pseudo-labels more, and labeled images are learned as they are

    def merging_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[float, Tensor]]:
        config, batch = self.config, len(labels)
        repeats = len(features) // batch
        certainty = 2 * ops.certainty_ratio(self.uncertainty[rows], config.tau_ratio)  # 0 to 1
        weights = (
            torch.cat([torch.ones_like(certainty), certainty]).repeat(repeats // 2) if config.weighted_pml else None
        )
        pml = ops.prototype_merging_loss(
            self.centred(features, rows), labels.repeat(repeats), self.merged, weights=weights
        )
        pml = self.context.group.share_of_mean(pml, weights)
        labeled = torch.cat(features.split(batch)[::2])
        cross_entropy = torch.nn.functional.cross_entropy(self.net.head(labeled), labels.repeat(repeats // 2))
        return {"pml": (config.alpha, pml), "labeled": (config.labeled_weight, cross_entropy)}
