"""ProUD with what the paper does not have: centred features, averaged weights, a merging loss that trusts with care."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from proud.lazy import ops, torch
from proud.methods.base import VIEW_UNIFORMS
from proud.methods.ema import EMAMethod
from proud.methods.proud import ProUD, ProUDConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from proud.methods.context import Context, ImagePool
    from proud.methods.proud import Chunk
    from proud.models import Net
    from proud.ops import PseudoLabels
    from proud.randomness import Draws, Randomness


@dataclass(frozen=True)
class ProUDPlusConfig(ProUDConfig):
    domain_norm: Literal["none", "center", "scale"] = "center"
    """what is done to unit features before angles are measured, in DaPP and in the merging loss: nothing, the domain's
    mean taken off, or every feature's spread made equal too"""
    neck: bool = False
    """batch-normalise the features, in the classifier too"""
    ema_decay: float = 0.99
    """decay of the moving average of the weights, which pseudo-labels, is evaluated and saved; 0 turns it off"""
    labeled_weight: float = 1.0
    """weight of a cross-entropy on the labeled images themselves, which pass through the network anyway"""
    weighted_pml: bool = True
    """an unlabeled image counts in the merging loss as much as its pseudo-label is certain"""
    pml_tau: float = 1.0
    """temperature of the merging loss; the paper's is 1, at which it never lets go"""
    classifier: float = 0.0
    """share of the classifier's own opinion in the pseudo-labels"""
    balance: float = 0.0
    """how much classes that come up more often than in the labeled domain are held back (0 to 1)"""
    warp: float = 0.0
    """strength of turning, zooming, shearing and shifting images that are learned from (0 to 1)"""


class ProUDPlus(ProUD, EMAMethod):
    Config = ProUDPlusConfig
    config: ProUDPlusConfig  # type: ignore[assignment]

    def __init__(self, config: ProUDPlusConfig, context: Context) -> None:
        super().__init__(config, replace(context, spec=replace(context.spec, neck=config.neck)))
        from proud.methods.context import any_length

        rows, domains = len(context.unlabeled), 1 + len(context.unlabeled_names)
        self.centers = torch.zeros(domains, self.net.num_features, device=context.device)
        self.scales = torch.ones_like(self.centers)
        self.domain_of = any_length(torch.zeros(rows, dtype=torch.int64, device=context.device))

    def labeler(self) -> Net:
        return self.average

    @property
    def view_uniforms(self) -> int:  # type: ignore[override]
        return VIEW_UNIFORMS + (ops.RANDOM_WARP_UNIFORMS if self.config.warp else 0)

    def training_view(self, images: Tensor, uniform: Tensor) -> Tensor:
        x = self.view(images, uniform[:, :VIEW_UNIFORMS])
        return ops.random_warp(x, uniform[:, VIEW_UNIFORMS:], self.config.warp) if self.config.warp else x

    def revised(self, found: PseudoLabels, chunks: Callable[[], Iterable[Chunk]], known: Tensor | None) -> PseudoLabels:
        """Prototypes and classifier decide together."""
        config = self.config
        if not config.classifier and not config.balance:
            return found
        pairs = [(ops.cosine_distance(features, found.prototypes), probs) for features, probs in chunks()]
        distances, probs = (torch.cat(parts, 1) for parts in zip(*pairs, strict=True))
        labels, uncertainty, agreement = ops.consensus(
            distances,
            probs,
            config.tau_uncertainty,
            found.present,
            classifier=config.classifier,
            balance=config.balance,
            prior=self.index.count / self.index.count.sum(),
            reduce=self.sharing.sum,
        )
        if known is not None:
            labels, uncertainty = torch.where(known >= 0, known, labels), uncertainty.masked_fill(known >= 0, 0)
        return replace(found, labels=labels, uncertainty=uncertainty, agreement=agreement)

    # ---- features normalised per domain: what all images of a domain share says nothing about classes

    def feature_chunks(
        self, purpose: str, pool: ImagePool, start: int, size: int, random: Randomness
    ) -> Callable[[], Iterable[Chunk]]:
        chunks = super().feature_chunks(purpose, pool, start, size, random)
        if self.config.domain_norm == "none":
            return chunks
        domain = 0 if pool is self.context.labeled else 1 + pool.starts.index(start)
        if domain:
            self.domain_of[start : start + size] = domain
        self.measure(domain, chunks, size)

        def normalized() -> Iterable[Chunk]:
            for features, probs in chunks():
                aligned = (features - self.centers[domain]) / self.scales[domain]
                yield torch.nn.functional.normalize(aligned, dim=-1), probs

        return normalized

    def measure(self, domain: int, chunks: Callable[[], Iterable[Chunk]], size: int) -> None:
        """Mean and standard deviation of a domain's unit features, over all its views."""
        count = size * self.config.views
        zero = torch.zeros_like(self.centers[domain])
        self.centers[domain] = self.sharing.sum(sum((f.sum((0, 1)) for f, _ in chunks()), start=zero)) / count
        if self.config.domain_norm == "scale":
            squares = (f.sub(self.centers[domain]).square().sum((0, 1)) for f, _ in chunks())
            self.scales[domain] = (self.sharing.sum(sum(squares, start=zero)) / count).sqrt().clamp_min(1e-6)

    def alignment(self, domain: int | None = None) -> tuple[Tensor, Tensor]:
        if domain is None:  # an unseen domain's own is not known: the mean over all
            return self.centers.mean(0), self.scales.mean(0)
        return self.centers[domain], self.scales[domain]

    def normalized(self, features: Tensor, rows: Tensor) -> Tensor:
        """Training features, laid out as in `merging_terms`, normalised like those of their domains."""
        if self.config.domain_norm == "none":
            return features
        domains = torch.cat([torch.zeros_like(rows), self.domain_of[rows]]).repeat(len(features) // (2 * len(rows)))
        unit = torch.nn.functional.normalize(features, dim=1)
        return (unit - self.centers[domains]) / self.scales[domains]

    def merging_views(self, originals: Tensor, copies: Tensor, draws: Draws) -> Tensor:
        views = super().merging_views(originals, copies, draws)
        if self.config.alpha:
            return views
        return torch.cat(views.split(self.config.batch_size)[::2])  # labeled images alone

    # ---- the merging loss trusts certain pseudo-labels more, and labeled images are learned as they are

    def merging_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[float, Tensor]]:
        config, batch = self.config, len(labels)
        if not config.alpha:
            copies = labels.repeat(len(features) // batch)
            cross_entropy = torch.nn.functional.cross_entropy(self.net.head(features), copies)
            return {"labeled": (config.labeled_weight, cross_entropy)}
        repeats = len(features) // batch
        certainty = 2 * ops.certainty_ratio(self.uncertainty[rows], config.tau_ratio)  # 0 to 1
        weights = (
            torch.cat([torch.ones_like(certainty), certainty]).repeat(repeats // 2) if config.weighted_pml else None
        )
        pml = ops.prototype_merging_loss(
            self.normalized(features, rows), labels.repeat(repeats), self.merged, weights=weights, tau=config.pml_tau
        )
        pml = self.context.group.share_of_mean(pml, weights)
        labeled = torch.cat(features.split(batch)[::2])
        cross_entropy = torch.nn.functional.cross_entropy(self.net.head(labeled), labels.repeat(repeats // 2))
        return {"pml": (config.alpha, pml), "labeled": (config.labeled_weight, cross_entropy)}
