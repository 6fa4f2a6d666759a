"""ProUD (Park, Cho, Kim): domain-aware prototypes, and mixing of domains that follows the pseudo-labels' uncertainty.

Reads as Algorithm 1 of the paper; the equations are in `proud.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from proud.lazy import ops, torch
from proud.methods.base import VIEW_UNIFORMS, Method, MethodConfig, Stage
from proud.distributed.group import ALONE, Group
from proud.methods.showing import saved_prototypes, shown_moment
from proud.methods.statistics import batch_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from proud.methods.context import Context, ImagePool
    from proud.nets.models import Net
    from proud.ops import PseudoLabels
    from proud.randomness import Draw, Draws, Randomness

Chunk = tuple["Tensor", "Tensor"]
KEEP_FEATURES_BYTES = 1 << 28  # larger domains are passed through the network three times instead


@dataclass(frozen=True)
class ProUDConfig(MethodConfig):
    views: int = 3
    """augmented views per image that vote on its pseudo-label (R)"""
    tau_uncertainty: float = 0.03
    """temperature of the uncertainty (Eq. 5)"""
    tau_ratio: float = 0.5
    """temperature of the mixing ratio (Eq. 7)"""
    threshold: float = 0.35
    """above this, the mixing ratio is drawn from U(0, 1) (λ*)"""
    alpha: float = 0.5
    """weight of the prototype merging loss"""
    mixup: float = 2.0
    """feature mixup draws its ratio from Beta(mixup, mixup)"""
    udmix: bool = True
    """mix by uncertainty; otherwise every ratio is drawn from U(0, 1)"""
    pml: bool = True
    """use the prototype merging loss"""
    joint_forward: bool = True
    """mixed images and those for the merging loss share one forward pass (and its batch statistics)"""
    dapp_bn: Literal["running", "domain"] = "domain"
    """batch-norm statistics for pseudo-labeling: the network's running ones, or the domain's own (those of twice
    `batch_size` of its images, 32 to 256)"""
    pml_views: Literal["originals", "either", "all"] = "originals"
    """images in the merging loss: augmented originals, these or their NoiseMix copies by turns, or both"""


class ProUD(Method):
    Config = ProUDConfig
    config: ProUDConfig
    ALSO_COMPILED = ("encode",)
    USES_KNOWN = True
    DISTRIBUTED = True
    MAIN_ONLY: ClassVar[tuple[str, ...]] = tuple(ProUDConfig.__annotations__)

    def __init__(self, config: ProUDConfig, context: Context) -> None:
        super().__init__(config, context)
        from proud.methods.context import any_length

        self.index = ops.class_index(context.labels, context.classes)
        any_length(self.index.order)
        rows, device = len(context.unlabeled), context.device
        self._domains: dict[str, PseudoLabels] = {}
        norms = torch.nn.modules.batchnorm._BatchNorm
        self.own_statistics = config.dapp_bn == "domain" and any(isinstance(m, norms) for m in self.net.modules())
        # the pseudo-labeled data sets D̃_t under the rows of their union, and the merged prototypes C̄
        self.labels = any_length(torch.zeros(rows, dtype=torch.int64, device=device))
        self.uncertainty = any_length(torch.zeros(rows, device=device))
        self.merged = torch.zeros(context.classes, self.net.num_features, device=device)

    def stages(self) -> list[Stage]:
        labeled, unlabeled = len(self.context.labeled), len(self.context.unlabeled)
        return [
            Stage("pretrain", self.config.pretrain_epochs, self.steps_for(labeled), {"labeled": labeled}),
            Stage("main", self.config.epochs, self.steps_for(unlabeled), {"unlabeled": unlabeled}),
        ]

    # ---- each epoch: DaPP on every domain

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        super().begin_epoch(stage, epoch, random)
        if stage.name == "main":
            with torch.no_grad():
                self.pseudo_label(random)

    def pseudo_label(self, random: Randomness) -> None:
        context = self.context
        domains = [self.labeled_prototypes(random)]
        self.last_labeled = domains[0]
        for t, name in enumerate(context.unlabeled_names):
            start, size = context.unlabeled.starts[t], context.unlabeled.sizes[t]
            mine = [rows[self.sharing.span(len(rows))] for rows in self.chunks(size)]
            chunks = self.feature_chunks(f"dapp-{t}", context.unlabeled, start, size, random)
            known = None if context.known is None else context.known[start + torch.cat(mine)]
            found = ops.dapp_streamed(chunks, self.tau, reduce=self.sharing.sum, known=known)
            found = self.whole(self.revised(found, chunks, known), mine, size)
            self._domains[name] = found
            self.labels[start : start + size] = found.labels
            self.uncertainty[start : start + size] = found.uncertainty
            domains.append((found.prototypes, found.present))
        self.merged.copy_(ops.merge_prototypes(domains))

    def revised(self, found: PseudoLabels, chunks: Callable[[], Iterable[Chunk]], known: Tensor | None) -> PseudoLabels:
        """A last word on a domain's pseudo-labels."""
        return found

    def whole(self, found: PseudoLabels, rows: list[Tensor], size: int) -> PseudoLabels:
        """All images' pseudo-labels, of which each process has found those of its own rows."""
        per_image = {name: getattr(found, name) for name in ("labels", "uncertainty", "agreement")}
        return replace(found, **{name: self.sharing.place(value, rows, size) for name, value in per_image.items()})

    def labeled_prototypes(self, random: Randomness) -> tuple[Tensor, Tensor]:
        """C_{0,k}: the labeled domain's prototypes, from its true labels."""
        context = self.context
        mine = torch.cat([rows[self.sharing.span(len(rows))] for rows in self.chunks(len(context.labeled))])
        labels = context.labels[mine]
        total, done = torch.zeros_like(self.merged), 0
        for features, _ in self.feature_chunks("dapp-labeled", context.labeled, 0, len(context.labeled), random)():
            here = labels[done : done + features.shape[1]]
            total.index_add_(0, here.repeat(self.config.views), features.flatten(0, 1))
            done += features.shape[1]
        total = self.sharing.sum(total)
        count = self.index.count.to(total.dtype) * self.config.views
        return total / count[:, None], self.index.count > 0

    def feature_chunks(
        self, purpose: str, pool: ImagePool, start: int, size: int, random: Randomness
    ) -> Callable[[], Iterable[Chunk]]:
        """A domain's features and class probabilities, in pieces that may be asked for several times."""

        def compute() -> Iterable[Chunk]:
            random.rewind(purpose)
            spare = start + self.order(size)[torch.arange(self.chunk_size, device=self.context.device) % size]
            for rows in self.chunks(size):
                yield self.views_of(pool, start + rows, spare, purpose, random)

        row_bytes = 4 * (self.net.num_features + self.context.classes)
        if size * self.config.views * row_bytes > KEEP_FEATURES_BYTES:
            return compute
        features, probs = zip(*compute(), strict=True)
        whole = (torch.cat(features, 1), torch.cat(probs, 1))
        return lambda: [whole]

    # a domain's own batch statistics are those of a piece of it: of the same size on every device, and from all over
    # it, for images that someone gives in the order of their classes would else be told by their place

    @property
    def chunk_size(self) -> int:
        return min(max(2 * self.config.batch_size, 32), 256) if self.own_statistics else self.context.chunk_size

    def order(self, population: int) -> Tensor:
        if not self.own_statistics:
            return torch.arange(population, device=self.context.device)
        return torch.randperm(population, generator=torch.Generator().manual_seed(0)).to(self.context.device)

    def chunks(self, population: int) -> Iterator[Tensor]:
        yield from self.order(population).split(self.chunk_size)

    @property
    def sharing(self) -> Group:
        """Who passes over the domains together. A domain's own batch statistics need whole chunks on every process."""
        return ALONE if self.own_statistics else self.context.group

    def views_of(self, pool: ImagePool, rows: Tensor, spare: Tensor, purpose: str, random: Randomness) -> Chunk:
        """Unit features [R, n, d] and probabilities [R, n, K] of R augmented views of this process's n of the rows.

        Spare images of the domain fill a chunk up where its shape or its statistics matter, and are dropped again.
        """
        views, chunk, mine = self.config.views, self.chunk_size, self.sharing.span(len(rows))
        uniform = random.uniform(purpose, views, chunk, VIEW_UNIFORMS)[:, mine.start :]
        images = pool.take(rows[mine])
        count = len(images)
        if not count:
            widths = (self.net.num_features, self.context.classes)
            return uniform.new_zeros(views, 0, widths[0]), uniform.new_zeros(views, 0, widths[1])
        own = self.own_statistics
        compiled = self.context.device.type == "cuda" and self.sharing.size == 1
        if own or compiled:
            images = torch.cat([images, pool.take(spare[: chunk - count])])
        with batch_statistics(self.labeler(), own):
            features, probs = self.encode(images, uniform[:, : len(images)])
        return features[:, :count], probs[:, :count]

    @property
    def tau(self) -> float:
        """Temperature of the uncertainty."""
        return self.config.tau_uncertainty

    def labeler(self) -> Net:
        """The network that pseudo-labels."""
        return self.net

    def encode(self, images: Tensor, uniform: Tensor) -> Chunk:
        views = len(uniform)
        x = self.view(images.repeat(views, 1, 1, 1), uniform.flatten(0, 1))
        with self.autocast():
            features, logits = self.labeler()(x)
        unit = torch.nn.functional.normalize(features.float(), dim=1)
        return unit.unflatten(0, (views, -1)), logits.float().softmax(1).unflatten(0, (views, -1))

    # ---- each step: SampleMatch, UDMix, update

    def draws(self, stage: Stage) -> dict[str, Draw]:
        from proud.randomness import Draw

        if stage.name == "pretrain":
            return self.labeled_draws(noisemix=True)
        batch = self.config.batch_size
        return {
            "match": Draw((batch,), sample_dim=0),
            "augment": Draw((2, batch, self.view_uniforms), sample_dim=1),
            "pairing": Draw((1,)),
            "pml_view": Draw((1,)),
            "ratio": Draw((2, batch), sample_dim=1),
            "mixup_ratio": Draw((1,), "beta", parameter=self.config.mixup),
            "mixup_partner": Draw((2 * batch,), "permutation"),
            **self.noise_draws(2),
        }

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        if stage.name == "pretrain":
            return {"loss": self.labeled_loss(rows["labeled"], draws, noisemix=True)}
        with torch.no_grad():
            labels = self.labels[rows["unlabeled"]]
            originals, copies = self.matched_views(rows["unlabeled"], labels, draws)
            mixed = self.domain_mix(rows["unlabeled"], originals, copies, draws)
            merging = self.merging_views(originals, copies, draws)
        mixed_features, merging_features = self.features(mixed, merging)
        terms = {"ce": (1.0, self.mixup_loss(mixed_features, labels.repeat(2), draws))}
        if self.unmixed:
            terms |= self.merging_terms(merging_features.float(), labels, rows["unlabeled"])
        total = terms["ce"][1]
        for weight, value in list(terms.values())[1:]:
            total = torch.add(total, value, alpha=weight)
        return {"loss": total} | {name: value for name, (_, value) in terms.items()}

    @property
    def unmixed(self) -> bool:
        """Whether images pass through the network unmixed too."""
        return self.config.pml

    def merging_views(self, originals: Tensor, copies: Tensor, draws: Draws) -> Tensor:
        if self.config.pml_views == "all":
            return torch.cat([originals, copies])
        if self.config.pml_views == "either":
            return torch.where(draws["pml_view"] < 0.5, originals, copies)
        return originals

    def merging_terms(self, features: Tensor, labels: Tensor, rows: Tensor) -> dict[str, tuple[float, Tensor]]:
        """Weights and values of the losses on unmixed images: labeled ones, unlabeled ones, then copies of both."""
        repeated = labels.repeat(len(features) // len(labels))
        return {"pml": (self.config.alpha, ops.prototype_merging_loss(features, repeated, self.merged))}

    def matched_views(self, rows: Tensor, labels: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """SampleMatch: labeled partners of the same class. [labeled, unlabeled] views, and their NoiseMix copies."""
        context = self.context
        partners = ops.sample_match(labels, self.index, draws["match"])
        images = torch.cat([context.labeled.take(partners), context.unlabeled.take(rows)])
        originals = self.training_view(images, draws["augment"].flatten(0, 1))
        return originals, self.noise_copy(originals, draws)

    def domain_mix(self, rows: Tensor, originals: Tensor, copies: Tensor, draws: Draws) -> Tensor:
        """UDMix of labeled and unlabeled images, like with like or originals with copies, at even odds."""
        ratio = self.ratio(self.uncertainty[rows], draws["ratio"])
        labeled, unlabeled = originals.chunk(2)
        labeled_copy, unlabeled_copy = copies.chunk(2)
        across = draws["pairing"] < 0.5
        first = ops.ud_mix(labeled, torch.where(across, unlabeled_copy, unlabeled), ratio[0])
        second = ops.ud_mix(labeled_copy, torch.where(across, unlabeled, unlabeled_copy), ratio[1])
        return torch.cat([first, second])

    def ratio(self, uncertainty: Tensor, uniform: Tensor) -> Tensor:
        """λ of each pair (Eq. 7)."""
        if not self.config.udmix:
            return uniform
        return ops.mixing_ratio(uncertainty, uniform, self.config.tau_ratio, self.threshold)

    @property
    def threshold(self) -> float:
        """λ*: a ratio above it is drawn from U(0, 1)."""
        return self.config.threshold

    def features(self, mixed: Tensor, merging: Tensor) -> Chunk:
        config = self.config
        with self.autocast():
            if not self.unmixed:
                features = self.net.features(mixed)
                return features, features[:0]
            if config.joint_forward:
                both = self.net.features(torch.cat([mixed, merging]))
                return both[: len(mixed)], both[len(mixed) :]
            return self.net.features(mixed), self.net.features(merging)

    def mixup_loss(self, features: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """Cross-entropy with mixup of features."""
        group, ratio = self.context.group, draws["mixup_ratio"]
        partner = group.part(draws["mixup_partner"].view(2, -1), 1).flatten()  # anyone in the global batch
        everyone = group.gather(features, blocks=2)
        with self.autocast():
            logits = self.net.head(ops.mixup(features, partner, ratio.to(features.dtype), among=everyone))
        return ops.mixup_cross_entropy(
            self.learned(logits.float()), labels, group.gather(labels, blocks=2)[partner], ratio
        )

    # ---- for records and reports

    def pseudo_labels(self) -> dict[str, PseudoLabels]:
        return self._domains

    def signals(self, found: PseudoLabels) -> dict[str, Tensor]:
        ratio = self.certainty(found.uncertainty)
        final = self.ratio(found.uncertainty, torch.full_like(ratio, 0.5))  # the mean of what may be drawn
        certain = (ratio > self.threshold).float()
        return {"lambda_uncertainty": ratio.mean(), "lambda": final.mean(), "certain": certain.mean()}

    def certainty(self, uncertainty: Tensor) -> Tensor:
        return ops.certainty_ratio(uncertainty, self.config.tau_ratio)

    def merged_prototypes(self) -> Tensor:
        return self.merged

    def prototypes(self, random: Randomness) -> dict[str, Tensor]:
        with torch.no_grad():
            self.pseudo_label(random)
        return saved_prototypes(self)

    def center_of(self, domain: int | None = None) -> Tensor:
        """What is taken off unit features before angles are measured; None: in an unseen domain."""
        return self.merged.new_zeros(self.merged.shape[1])

    def snapshot(self, random: Randomness) -> dict[str, Tensor]:
        return shown_moment(self, random)
