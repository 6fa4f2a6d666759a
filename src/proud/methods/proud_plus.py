"""ProUD with what the paper does not have, and without its UDMix:

- features are centred per domain before angles are measured (`center`);
- the classifier is a second opinion on pseudo-labels: where it disagrees with the prototypes, they are uncertain
  (`classifier`);
- the merging loss is sharper and weights pseudo-labels by certainty (`alpha`, `pml_tau`);
- cross-entropies on unmixed images: labeled and, by certainty, unlabeled (`labeled_weight`, `certain_weight`);
- losses compensate for class frequencies (`class_mix`);
- averaged weights label, are evaluated and saved (`ema_epochs`);
- images become line drawings, are warped, or strongly augmented (`outline`, `warp`, `strong`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from proud.config import NotNegative, Positive, Share
from proud.lazy import ops, torch
from proud.methods.base import MethodConfig, Sizes, Stage, any_length
from proud.methods.description import Description
from proud.methods.ema import WeightAverage
from proud.methods.passes import DomainPass, Passes
from proud.methods.proud import ProUD, ProUDConfig
from proud.methods.views import SIMPLE_UNIFORMS, Views
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from types import SimpleNamespace

    from torch import Tensor

    from proud.methods.context import Context
    from proud.ops import PseudoLabels
    from proud.randomness import Randomness

UNEVEN = 0.25  # total variation between the labeled domain's class distribution and a uniform one: worth a warning


@dataclass(frozen=True)
class ProUDPlusConfig(ProUDConfig):
    udmix: bool = False
    """mix by uncertainty, as the paper does; otherwise at random ratios from 0 to 1"""
    alpha: NotNegative = 1.0
    """weight of the prototype merging loss"""
    center: bool = True
    """subtract a domain's mean from its features before angles are measured, also in the merging loss"""
    classifier: Share = 0.5
    """share of the classifier in the probabilities of pseudo-labels; the rest is the prototypes'"""
    class_mix: Literal["labeled", "even"] = "even"
    """class prior of other domains: that of the labeled domain, or uniform (losses then compensate for frequency)"""
    pml_tau: Positive = 0.1
    """temperature of the merging loss; the paper's is 1, at which it never saturates"""
    labeled_weight: NotNegative = 1.0
    """weight of a cross-entropy on the unmixed labeled images"""
    certain_weight: NotNegative = 1.0
    """weight of a cross-entropy on the unmixed unlabeled images, each weighted by its certainty"""
    strong: bool = True
    """the unmixed unlabeled images are strongly augmented (RandAugment and Cutout)"""
    outline: Share = 0.25
    """share of the training images that become line drawings: dark edges on white"""
    warp: Share = 0.0
    """strength of random rotation, zoom, shear and shift of training images"""
    ema_epochs: NotNegative = 10.0
    """epochs over which weights are averaged, at most a quarter of all; the average is used and saved; 0: off"""


class WarpedViews(Views):
    """Training images are warped, and some become line drawings."""

    def __init__(self, context: Context, config: ProUDPlusConfig, numbers: SimpleNamespace) -> None:
        super().__init__(context, config, numbers)
        self.warp = numbers.warp if config.warp else None
        self.outline = numbers.outline if config.outline else None
        self.parts = [SIMPLE_UNIFORMS, ops.RANDOM_WARP_UNIFORMS, ops.RANDOM_OUTLINE_UNIFORMS]
        self.uniforms = sum(self.parts)
        self.strong_uniforms = SIMPLE_UNIFORMS + ops.RAND_AUGMENT_UNIFORMS

    def training(self, images: Tensor, uniform: Tensor) -> Tensor:
        simple, warp, outline = uniform.split(self.parts, 1)
        x = self.simple(images, simple)
        if self.outline is not None:
            x = ops.random_outline(x, outline, self.outline, self.mean, self.std)
        return x if self.warp is None else ops.random_warp(x, warp, self.warp)

    def strong(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Translation and flip, then RandAugment and Cutout."""
        shift, strong = uniform.tensor_split([SIMPLE_UNIFORMS], 1)
        return ops.normalize(ops.rand_augment(self.shifted(images, shift), strong), self.mean, self.std)


class ProUDPlus(ProUD):
    Config = ProUDPlusConfig
    config: ProUDPlusConfig
    views: WarpedViews

    def __init__(self, config: ProUDPlusConfig, context: Context) -> None:
        super().__init__(config, context)
        self.views = WarpedViews(context, config, self.numbers)
        self.uses_certain = config.certain_weight > 0
        self.uses_unmixed = config.pml or config.labeled_weight > 0 or self.uses_certain
        self.share = config.classifier  # of the classifier in pseudo-labels
        self.average = WeightAverage(self.context, self.decay_limit, statistics="averaged")
        self.passes = Passes(self.average.net, self.context, self.views, config.views, config.batch_size)
        rows, domains = len(context.unlabeled), 1 + len(context.unlabeled_names)
        self.centers = any_length(torch.zeros(domains, self.net.num_features, device=context.device))
        self.domain_of = any_length(torch.zeros(rows, dtype=torch.int64, device=context.device))
        for t in range(domains - 1):
            self.domain_of[context.unlabeled.rows_of(t)] = t + 1
        self.prior = ops.expected_mix(context.labels, context.classes, config.class_mix == "even")
        if config.class_mix == "even":
            self.log_prior = ops.log_class_mix(context.labels, context.classes)

    @classmethod
    def stages(cls, config: MethodConfig, sizes: Sizes) -> list[Stage]:
        pretraining = ("warp", "outline", "class_mix")
        return cls.pretrain_and_main(config, sizes, main=("unlabeled",), pretraining=pretraining)

    def decay_limit(self, stage: Stage, epoch: int) -> float:
        memory = min(self.config.ema_epochs, stage.epochs / 4) * stage.steps
        return 1 - 1 / memory if memory > 1 else 0.0

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        # running statistics are those of the labeled domain before the first epoch
        used = epoch > 0 or not self.passes.batch_statistics
        self.share = self.config.classifier if used else 0.0
        super().begin_epoch(stage, epoch, random)

    # ---- pseudo-labels: centred features, prototypes and classifier together

    def pseudo_label(self, random: Randomness) -> None:
        super().pseudo_label(random)
        if self.log_prior is not None:
            # SampleMatch draws labeled images of the pseudo-labels' classes, so all batches have their distribution
            self.log_prior.copy_(ops.log_class_mix(self.labels, self.context.classes))

    def seen(self, domain: int, random: Randomness) -> DomainPass:
        found = super().seen(domain, random)
        if not self.config.center:
            return found
        self.centers[domain] = found.mean(self.net.num_features)
        return found.centred(self.centers[domain])

    def decide(self, domain: DomainPass) -> PseudoLabels:
        found = super().decide(domain)
        if not self.share:
            return found
        distances = torch.cat([ops.cosine_distance(each, found.prototypes) for each, _ in domain.chunks()], 1)
        labels, uncertainty, agreement = ops.consensus(
            distances, self.passes.classified(domain), self.tau, found.present, self.share, known=domain.known
        )
        return replace(found, labels=labels, uncertainty=uncertainty, agreement=agreement)

    # ---- each step

    def draws(self, stage: Stage) -> dict[str, Draw]:
        wanted = super().draws(stage)
        if stage.name == "main" and self.config.strong:
            wanted["strong"] = Draw((self.config.batch_size, self.views.strong_uniforms), sample_dim=0)
        return wanted

    def unmixed(self, originals: Tensor, rows: Tensor, draws: Draws) -> Tensor:
        if not self.config.strong:
            return originals
        strong = self.views.strong(self.context.unlabeled.take(rows), draws["strong"])
        return torch.cat([originals.chunk(2)[0], strong])

    # ---- losses on unmixed images: weighted merging, and labeled images

    def unmixed_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        numbers, terms = self.numbers, {}
        certainty = 2 * self.certainty(self.uncertainty[rows])  # 0 to 1
        if self.config.pml:
            weights = torch.cat([torch.ones_like(certainty), certainty])
            pml = ops.prototype_merging_loss(
                self.less_center(features, rows), labels.repeat(2), self.merged, weights=weights, tau=numbers.pml_tau
            )
            terms["pml"] = (numbers.alpha, self.context.group.weighted_share(pml, weights))
        labeled, unlabeled = features.chunk(2)
        terms["labeled"] = (numbers.labeled_weight, self.head_loss(labeled, labels).mean())
        if self.uses_certain:
            terms["certain"] = (numbers.certain_weight, (certainty * self.head_loss(unlabeled, labels)).mean())
        return terms

    def head_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """The classifier's cross-entropy of each image. [N,d], [N] -> [N]."""
        return torch.nn.functional.cross_entropy(self.adjusted(self.net.head(features)), labels, reduction="none")

    def less_center(self, features: Tensor, rows: Tensor) -> Tensor:
        """Features of labeled and unlabeled images, centred like those of their domains."""
        if not self.config.center:
            return features
        domains = torch.cat([torch.zeros_like(rows), self.domain_of[rows]])
        return torch.nn.functional.normalize(features, dim=1) - self.centers[domains]

    def describe(self, random: Randomness | None = None) -> Description:
        found = super().describe(random)
        prototypes = found.prototypes
        if prototypes is not None and self.config.center:
            prototypes = replace(prototypes, centers=self.centers)
        return replace(found, prototypes=prototypes, class_priors=self.prior[None], warnings=self.warnings())

    def warnings(self) -> tuple[str, ...]:
        labeled = ops.class_mix(self.context.labels, self.context.classes)
        if self.log_prior is None or (labeled - self.prior).abs().sum() / 2 <= UNEVEN:
            return ()
        return (
            f"The labeled domain is unbalanced ({100 * labeled.max().item():.0f} % of its images are of one class), "
            "but proud-plus assumes a uniform class prior elsewhere. If your other domains are as unbalanced as this "
            "one, use --class-mix labeled.",
        )
