"""ProUD with what the paper does not have.

Features are centred per domain; prototypes and classifier decide together on pseudo-labels; the merging loss is sharper
and trusts certain ones more; labeled images are also learned as they are; weights are averaged; images are warped, and
some are turned into line drawings; batch norm also looks at the image itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from proud.lazy import ops, torch
from proud.methods.base import VIEW_UNIFORMS
from proud.methods.ema import EMAMethod
from proud.methods.proud import ProUD, ProUDConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from proud.methods.base import Stage
    from proud.methods.context import Context, ImagePool
    from proud.methods.proud import Chunk
    from proud.nets.models import Net
    from proud.ops import PseudoLabels
    from proud.randomness import Randomness


UNEVEN = 0.25  # a labeled domain's class mix so far (in total variation) from an even one is worth a word


@dataclass(frozen=True)
class ProUDPlusConfig(ProUDConfig):
    threshold: float = 0.15
    """above this, the mixing ratio is drawn from U(0, 1), but not with half of the doubt that there can be; the
    paper's is 0.35"""
    alpha: float = 1.0
    """weight of the prototype merging loss"""
    center: bool = True
    """take a domain's mean off its unit features before angles are measured, in DaPP and in the merging loss"""
    spread: float = 2.0
    """the uncertainty's temperature is multiplied by this: centred features spread further"""
    classifier: float = 0.5
    """weight of the classifier's own opinion in the pseudo-labels"""
    balance: float = 0.25
    """how much classes that come up more often than in the expected class mix are held back (0 to 1)"""
    class_mix: Literal["labeled", "even"] = "even"
    """how often classes are expected to come up elsewhere: as in the labeled domain, or all alike; then losses also
    make up for classes that come up more often than others in what is learned from"""
    pml_tau: float = 0.1
    """temperature of the merging loss; the paper's is 1, at which it never lets go"""
    labeled_weight: float = 1.0
    """weight of a cross-entropy on the labeled images themselves, which pass through the network anyway"""
    warp: float = 0.5
    """strength of turning, zooming, shearing and shifting images that are learned from (0 to 1)"""
    own_share: float = 0.15
    """share of an image's own statistics in batch norm, in training and ever after (0 to 1)"""
    outline: float = 0.25
    """share of the images that are learned from as line drawings: dark edges on white"""
    ema_epochs: float = 10.0
    """epochs over which weights are averaged, a quarter of all at most; the average pseudo-labels, is evaluated and
    saved; 0 turns it off"""


class ProUDPlus(ProUD, EMAMethod):
    Config = ProUDPlusConfig
    config: ProUDPlusConfig  # type: ignore[assignment]
    MAIN_ONLY = tuple(
        {*ProUD.MAIN_ONLY, *ProUDPlusConfig.__annotations__} - {"own_share", "warp", "outline", "class_mix"}
    )

    def __init__(self, config: ProUDPlusConfig, context: Context) -> None:
        super().__init__(config, replace(context, spec=replace(context.spec, own_share=config.own_share)))
        from proud.methods.context import any_length

        self.centred = config.center
        rows, domains = len(context.unlabeled), 1 + len(context.unlabeled_names)
        self.centers = torch.zeros(domains, self.net.num_features, device=context.device)
        self.domain_of = any_length(torch.zeros(rows, dtype=torch.int64, device=context.device))
        self.even = config.class_mix == "even"
        self.expected = ops.expected_mix(context.labels, context.classes, self.even)
        self.log_mix = ops.log_class_mix(context.labels, context.classes)

    # ---- classes alike

    def pseudo_label(self, random: Randomness) -> None:
        super().pseudo_label(random)
        # SampleMatch draws labeled images of the pseudo-labels' classes: all batches have their mix
        self.log_mix.copy_(ops.log_class_mix(self.labels, self.context.classes))

    def plausible_mixes(self) -> Tensor:
        return torch.cat([super().plausible_mixes(), self.expected[None]])

    def learned(self, logits: Tensor) -> Tensor:
        return logits + self.log_mix if self.even else logits

    def cautions(self) -> list[str]:
        labeled = ops.class_mix(self.context.labels, self.context.classes)
        if not self.even or (labeled - self.expected).abs().sum() / 2 <= UNEVEN:
            return []
        commonest = f"{100 * labeled.max().item():.0f} % of its images are of one class"
        return [
            f"Classes are uneven in the labeled domain ({commonest}), and proud-plus expects them equally often "
            "elsewhere. Where your other domains see them as often as this one, say --class-mix labeled."
        ]

    # ---- certainty

    @property
    def threshold(self) -> float:
        # two classes leave less to doubt than ten: doubt counts as such from half of ln K on, however few there are
        half = math.log(self.context.classes) / 2
        return max(self.config.threshold, 1 / (1 + math.exp(half / self.config.tau_ratio)))

    # ---- averaged weights

    def labeler(self) -> Net:
        return self.average

    def decay_limit(self, stage: Stage, epoch: int) -> float:
        memory = min(self.config.ema_epochs, stage.epochs / 4) * stage.steps
        return 1 - 1 / memory if memory > 1 else 0.0

    def update_statistics(self, stage: Stage) -> None:
        # running batch statistics remember ten steps or so, and NoiseMix draws its kernels per step: averaged too
        pairs = [
            pair for pair in zip(self.average.buffers(), self.net.buffers(), strict=True) if pair[0].is_floating_point()
        ]
        if pairs:
            self.move(*zip(*pairs, strict=True))

    # ---- stronger views

    @property
    def view_uniforms(self) -> int:  # type: ignore[override]
        return sum(self.view_parts())

    def training_view(self, images: Tensor, uniform: Tensor) -> Tensor:
        config, mean, std = self.config, self.context.mean, self.context.std
        simple, warp, outline = uniform.split(self.view_parts(), 1)
        x = self.view(images, simple)
        if config.outline:
            x = ops.random_outline(x, outline, config.outline, mean, std)
        return ops.random_warp(x, warp, config.warp) if config.warp else x

    @staticmethod
    def view_parts() -> list[int]:
        """Random numbers per image for each step of a view."""
        return [VIEW_UNIFORMS, ops.RANDOM_WARP_UNIFORMS, ops.RANDOM_OUTLINE_UNIFORMS]

    # ---- prototypes and classifier decide together

    @property
    def tau(self) -> float:
        return self.config.tau_uncertainty * (self.config.spread if self.config.center else 1)

    def revised(self, found: PseudoLabels, chunks: Callable[[], Iterable[Chunk]], known: Tensor | None) -> PseudoLabels:
        config = self.config
        pairs = [(ops.cosine_distance(features, found.prototypes), probs) for features, probs in chunks()]
        distances, probs = (torch.cat(parts, 1) for parts in zip(*pairs, strict=True))
        labels, uncertainty, agreement = ops.consensus(
            distances,
            probs,
            self.tau,
            found.present,
            classifier=config.classifier,
            balance=config.balance,
            prior=self.expected,
            known=known,
            reduce=self.sharing.sum,
        )
        return replace(found, labels=labels, uncertainty=uncertainty, agreement=agreement)

    # ---- centred features: what all images of a domain share says nothing about classes

    def feature_chunks(
        self, purpose: str, pool: ImagePool, start: int, size: int, random: Randomness
    ) -> Callable[[], Iterable[Chunk]]:
        chunks = super().feature_chunks(purpose, pool, start, size, random)
        if not self.config.center:
            return chunks
        domain = 0 if pool is self.context.labeled else 1 + pool.starts.index(start)
        if domain:
            self.domain_of[start : start + size] = domain
        total = sum((features.sum((0, 1)) for features, _ in chunks()), start=torch.zeros_like(self.centers[domain]))
        self.centers[domain] = self.sharing.sum(total) / (size * self.config.views)

        def centred() -> Iterable[Chunk]:
            for features, probs in chunks():
                yield torch.nn.functional.normalize(features - self.centers[domain], dim=-1), probs

        return centred

    def center_of(self, domain: int | None = None) -> Tensor:
        # an unseen domain's own mean is not known: the mean over all
        return self.centers.mean(0) if domain is None else self.centers[domain]

    def less_center(self, features: Tensor, rows: Tensor) -> Tensor:
        """Training features, laid out as in `merging_terms`, centred like those of their domains."""
        if not self.config.center:
            return features
        domains = torch.cat([torch.zeros_like(rows), self.domain_of[rows]]).repeat(len(features) // (2 * len(rows)))
        return torch.nn.functional.normalize(features, dim=1) - self.centers[domains]

    # ---- the merging loss trusts certain pseudo-labels more, and labeled images are learned as they are

    @property
    def unmixed(self) -> bool:
        return self.config.pml or self.config.labeled_weight > 0

    def merging_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[float, Tensor]]:
        config, terms, repeats = self.config, {}, len(features) // (2 * len(labels))
        if config.pml:
            certainty = 2 * self.certainty(self.uncertainty[rows])  # 0 to 1
            weights = torch.cat([torch.ones_like(certainty), certainty]).repeat(repeats)
            pml = ops.prototype_merging_loss(
                self.less_center(features, rows),
                labels.repeat(2 * repeats),
                self.merged,
                weights=weights,
                tau=config.pml_tau,
            )
            terms["pml"] = (config.alpha, self.context.group.share_of_mean(pml, weights))
        labeled = torch.cat(features.split(len(labels))[::2])
        logits = self.learned(self.net.head(labeled))
        cross_entropy = torch.nn.functional.cross_entropy(logits, labels.repeat(repeats))
        return terms | {"labeled": (config.labeled_weight, cross_entropy)}
