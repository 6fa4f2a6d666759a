"""ProUD (Park, Cho, Kim): domain-aware prototypes, and mixing of domains by the uncertainty of pseudo-labels.

Reads as Algorithm 1 of the paper; the equations are in `proud.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import BetaParameter, Count, NotNegative, Positive, Share
from proud.lazy import ops, torch
from proud.methods.base import Method, MethodConfig, Sizes, Stage, any_length
from proud.methods.description import Description, Prototypes
from proud.methods.passes import DomainPass, Passes
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context
    from proud.ops import PseudoLabels
    from proud.randomness import Randomness


@dataclass(frozen=True)
class ProUDConfig(MethodConfig):
    views: Count = 3
    """augmented views per image that vote on its pseudo-label"""
    tau_uncertainty: Positive = 0.03
    """temperature of the uncertainty: the smaller, the more certain are pseudo-labels near a prototype"""
    tau_ratio: Positive = 0.5
    """temperature of the certainty, and so of the mixing ratio: how steeply it falls with the uncertainty"""
    threshold: Share = 0.35
    """certainty above which `udmix` mixes a pseudo-label in at random ratios from 0 to 1"""
    alpha: NotNegative = 0.5
    """weight of the prototype merging loss"""
    mixup: BetaParameter = 2.0
    """features of two images are mixed; the larger, the more evenly (parameter of a beta distribution)"""
    udmix: bool = True
    """mix by uncertainty; otherwise at random ratios from 0 to 1"""
    pml: bool = True
    """use the prototype merging loss"""


class ProUD(Method):
    Config = ProUDConfig
    config: ProUDConfig
    uses_known_labels = True
    distributed = True

    def __init__(self, config: ProUDConfig, context: Context) -> None:
        super().__init__(config, context)
        self.index = ops.class_index(context.labels, context.classes)
        any_length(self.index.order)
        self.passes = Passes(self.net, context, self.views, config.views, config.batch_size)
        self.uses_unmixed = config.pml
        # the pseudo-labeled domains under the rows of their union, and the merged prototypes C̄
        rows, device = len(context.unlabeled), context.device
        self.found: dict[str, PseudoLabels] = {}
        self.labels = any_length(torch.zeros(rows, dtype=torch.int64, device=device))
        self.uncertainty = any_length(torch.zeros(rows, device=device))
        self.merged = torch.zeros(context.classes, self.net.num_features, device=device)

    @classmethod
    def stages(cls, config: MethodConfig, sizes: Sizes) -> list[Stage]:
        return cls.pretrain_and_main(config, sizes, main=("unlabeled",), pretraining=())

    # ---- each epoch: pseudo-labels and prototypes of every domain (DaPP)

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        super().begin_epoch(stage, epoch, random)
        if stage.name == "main":
            with torch.no_grad():
                self.pseudo_label(random)

    def pseudo_label(self, random: Randomness) -> None:
        pool, width = self.context.unlabeled, self.net.num_features
        self.labeled = self.seen(0, random).class_means(self.context.labels, self.index.count, width)
        domains = [self.labeled]
        for t, name in enumerate(self.context.unlabeled_names):
            domain = self.seen(t + 1, random)
            found = self.found[name] = domain.complete(self.decide(domain))
            self.labels[pool.rows_of(t)] = found.labels
            self.uncertainty[pool.rows_of(t)] = found.uncertainty
            domains.append((found.prototypes, found.present))
        self.merged.copy_(ops.merge_prototypes(domains))

    def seen(self, domain: int, random: Randomness) -> DomainPass:
        """A full pass over the labeled domain (0) or an unlabeled one."""
        return self.passes.unlabeled(domain - 1, random) if domain else self.passes.labeled(random)

    def decide(self, domain: DomainPass) -> PseudoLabels:
        return ops.dapp(domain.chunks, self.tau, reduce=domain.group.sum, known=domain.known)

    # ---- each step: SampleMatch, UDMix, update

    def draws(self, stage: Stage) -> dict[str, Draw]:
        if stage.name == "pretrain":
            return self.labeled_draws(noisemix=True)
        batch = self.config.batch_size
        return {
            "match": Draw((batch,), sample_dim=0),
            "augment": Draw((2, batch, self.views.uniforms), sample_dim=1),
            "pairing": Draw((2,)),  # the second number is unused: without it, seeds would give other results
            "ratio": Draw((2, batch), sample_dim=1),
            "mixup_ratio": Draw((1,), "beta", parameter=self.config.mixup),
            "mixup_partner": Draw((2 * batch,), "permutation"),
            **self.views.noise_draws(2),
        }

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        if stage.name == "pretrain":
            return {"loss": self.labeled_loss(rows["labeled"], draws, noisemix=True)}
        with torch.no_grad():
            labels = self.labels[rows["unlabeled"]]
            originals, copies = self.matched_views(rows["unlabeled"], labels, draws)
            images = self.domain_mix(rows["unlabeled"], originals, copies, draws)
            if self.uses_unmixed:
                images = torch.cat([images, self.unmixed(originals, rows["unlabeled"], draws)])
        with self.context.autocast():  # mixed and unmixed images share a forward pass, and so its batch statistics
            features = self.net.features(images)
        mixed_features, unmixed = features[: 2 * len(labels)], features[2 * len(labels) :]
        ce = total = self.mixup_loss(mixed_features, labels.repeat(2), draws)
        terms = self.unmixed_terms(unmixed.float(), labels, rows["unlabeled"]) if self.uses_unmixed else {}
        for weight, value in terms.values():
            total = total + weight * value
        return {"loss": total, "ce": ce} | {name: value for name, (_, value) in terms.items()}

    def unmixed(self, originals: Tensor, rows: Tensor, draws: Draws) -> Tensor:
        """The images that are learned from as they are: [labeled, unlabeled]."""
        return originals

    def unmixed_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Weights and values of the losses on unmixed images, labeled ones first: the merging loss (Eq. 4)."""
        return {"pml": (self.numbers.alpha, ops.prototype_merging_loss(features, labels.repeat(2), self.merged))}

    def matched_views(self, rows: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """SampleMatch: labeled partners of the same class. [labeled, unlabeled] views, and their NoiseMix copies."""
        partners = ops.sample_match(labels, self.index, draws["match"])
        images = torch.cat([self.context.labeled.take(partners), self.context.unlabeled.take(rows)])
        originals = self.views.training(images, draws["augment"].flatten(0, 1))
        return originals, self.views.noise_copies(originals, draws)

    def domain_mix(self, rows: Tensor, originals: Tensor, copies: Tensor, draws: Draws) -> Tensor:
        """UDMix of labeled and unlabeled images: pairs of one kind or originals with copies, with equal probability."""
        ratio = self.ratio(self.uncertainty[rows], draws["ratio"])
        labeled, unlabeled = originals.chunk(2)
        labeled_copy, unlabeled_copy = copies.chunk(2)
        across = draws["pairing"][:1] < 0.5
        first = ops.ud_mix(labeled, torch.where(across, unlabeled_copy, unlabeled), ratio[0])
        second = ops.ud_mix(labeled_copy, torch.where(across, unlabeled, unlabeled_copy), ratio[1])
        return torch.cat([first, second])

    def mixup_loss(self, features: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """Cross-entropy with mixup of features."""
        group, ratio = self.context.group, draws["mixup_ratio"]
        partner = group.part(draws["mixup_partner"].view(2, -1), 1).flatten()  # anyone in the global batch
        everyone = group.all_rows(features, blocks=2)
        with self.context.autocast():
            logits = self.net.head(ops.mixup(features, partner, ratio.to(features.dtype), among=everyone))
        others = group.all_rows(labels, blocks=2)[partner]
        return ops.mixup_cross_entropy(self.adjusted(logits.float()), labels, others, ratio)

    # ---- uncertainty and mixing ratio

    @property
    def tau(self) -> float:
        return self.config.tau_uncertainty

    def certainty(self, uncertainty: Tensor) -> Tensor:
        """λ_ε."""
        return ops.certainty_ratio(uncertainty, self.numbers.tau_ratio)

    def ratio(self, uncertainty: Tensor, uniform: Tensor) -> Tensor:
        """λ of each pair (Eq. 7)."""
        if not self.config.udmix:
            return uniform
        return ops.mixing_ratio(uncertainty, uniform, self.numbers.tau_ratio, self.numbers.threshold)

    def describe(self, random: Randomness | None = None) -> Description:
        if random is not None:
            with torch.no_grad():
                self.pseudo_label(random)
        if not self.found:
            return Description()
        prototypes = Prototypes(self.merged, *self.labeled, self.tau, self.passes.batch_statistics)
        return Description(self.found, prototypes, self.certainty, self.ratio, self.config.threshold)
