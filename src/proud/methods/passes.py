"""Full passes over domains for pseudo-labeling: in chunks, shared by processes, with a domain's own batch statistics.

A domain's statistics are those of chunks of the same size on every device, drawn from all over the domain: otherwise
images that are sorted by class would be recognised by their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from proud.distributed.group import ALONE, Group
from proud.lazy import LazyModule, torch
from proud.methods.views import SIMPLE_UNIFORMS, Views

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context, ImagePool
    from proud.nets import batch_norm
    from proud.nets.models import Net
    from proud.ops import PseudoLabels
    from proud.randomness import Randomness
else:
    batch_norm = LazyModule("proud.nets.batch_norm")

Chunk = tuple["Tensor", "Tensor"]  # unit features [R,n,d] and class probabilities [R,n,K] of R views
KEPT_BYTES = 1 << 28  # larger domains pass through the network again for every iteration


@dataclass(frozen=True, eq=False)
class DomainPass:
    """One domain in R augmented views: this process's features and class probabilities."""

    chunks: Callable[[], Iterable[Chunk]]
    """may be iterated several times"""
    rows: list[Tensor]
    """this process's images, numbered within the domain"""
    size: int
    views: int
    known: Tensor | None
    """labels that the user added to these images, -1 elsewhere"""
    group: Group
    images: Callable[[Tensor], Tensor]
    """stored images by their numbers within the domain"""

    def class_means(self, labels: Tensor, counts: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Prototypes under true labels of the whole domain. [N], [K] -> [K,d], [K] bool."""
        mine, done = labels[torch.cat(self.rows)], 0
        total = torch.zeros(len(counts), width, device=labels.device)
        for features, _ in self.chunks():
            here = mine[done : done + features.shape[1]]
            total.index_add_(0, here.repeat(self.views), features.flatten(0, 1))
            done += features.shape[1]
        return self.group.sum(total) / (counts.to(total.dtype) * self.views)[:, None], counts > 0

    def mean(self, width: int) -> Tensor:
        """The mean feature. [d]."""
        zero = torch.zeros(width, device=self.rows[0].device)
        return self.group.sum(sum((f.sum((0, 1)) for f, _ in self.chunks()), start=zero)) / (self.size * self.views)

    def centred(self, center: Tensor) -> DomainPass:
        """The same with features minus `center`, of unit length again."""

        def chunks() -> Iterable[Chunk]:
            for features, probs in self.chunks():
                yield torch.nn.functional.normalize(features - center, dim=-1), probs

        return replace(self, chunks=chunks)

    def complete(self, found: PseudoLabels) -> PseudoLabels:
        """All images' pseudo-labels, of which each process has computed those of its own rows."""
        per_image = {name: getattr(found, name) for name in ("labels", "uncertainty", "agreement")}
        whole = {name: self.group.merge(value, self.rows, self.size) for name, value in per_image.items()}
        return replace(found, **whole)


class Passes:
    """Makes passes with one network. `views`: augmented views per image (R)."""

    def __init__(self, net: Net, context: Context, views: Views, count: int, batch_size: int) -> None:
        self.net, self.context, self.views, self.count = net, context, views, count
        self.batch_statistics = batch_norm.has_batch_norm(net)
        # a chunk's statistics need whole chunks on every process
        self.group = ALONE if self.batch_statistics else context.group
        self.chunk_size = min(max(2 * batch_size, 32), 256) if self.batch_statistics else context.chunk_size
        self.encode = context.compile(self._encode)
        self.classify = context.compile(self._classify)

    def labeled(self, random: Randomness) -> DomainPass:
        pool = self.context.labeled
        return self._domain("dapp-labeled", pool, 0, len(pool), None, random)

    def unlabeled(self, t: int, random: Randomness) -> DomainPass:
        """Unlabeled domain t, counted from 0."""
        pool = self.context.unlabeled
        return self._domain(f"dapp-{t}", pool, pool.starts[t], pool.sizes[t], self.context.known, random)

    def _domain(
        self, purpose: str, pool: ImagePool, start: int, size: int, known: Tensor | None, random: Randomness
    ) -> DomainPass:
        pieces = self._order(size).split(self.chunk_size)
        mine = [rows[self.group.span(len(rows))] for rows in pieces]

        def compute() -> Iterable[Chunk]:
            random.rewind(purpose)
            spare = start + self._order(size)[torch.arange(self.chunk_size, device=self.context.device) % size]
            for rows in pieces:
                yield self._chunk(pool, start + rows, spare, purpose, random)

        chunks: Callable[[], Iterable[Chunk]] = compute
        if size * self.count * 4 * (self.net.num_features + self.context.classes) <= KEPT_BYTES:
            features, probs = zip(*compute(), strict=True)
            whole = (torch.cat(features, 1), torch.cat(probs, 1))

            def kept() -> Iterable[Chunk]:
                return [whole]

            chunks = kept
        here = None if known is None else known[start + torch.cat(mine)]
        return DomainPass(chunks, mine, size, self.count, here, self.group, lambda rows: pool.take(start + rows))

    def classified(self, domain: DomainPass) -> Tensor:
        """The classifier's probabilities of this process's images, in evaluation view and with running statistics."""
        rows, size = torch.cat(domain.rows), self.context.chunk_size
        if not len(rows):
            return torch.zeros(0, self.context.classes, device=rows.device)
        full = rows
        if self.compiled:
            full = rows[torch.arange(-(-len(rows) // size) * size, device=rows.device) % len(rows)]  # whole chunks
        with batch_norm.evaluating(self.net):
            probs = [self.classify(domain.images(piece)) for piece in full.split(size)]
        return torch.cat(probs)[: len(rows)]

    @property
    def compiled(self) -> bool:
        """Whether a chunk of another size would be compiled anew."""
        return self.context.device.type == "cuda" and self.context.group.size == 1

    def _classify(self, images: Tensor) -> Tensor:
        with self.context.autocast():
            _, logits = self.net(self.views.evaluation(images))
        return logits.float().softmax(1)

    def _order(self, population: int) -> Tensor:
        if not self.batch_statistics:
            return torch.arange(population, device=self.context.device)
        return torch.randperm(population, generator=torch.Generator().manual_seed(0)).to(self.context.device)

    def _chunk(self, pool: ImagePool, rows: Tensor, spare: Tensor, purpose: str, random: Randomness) -> Chunk:
        """This process's n of the rows. Spare images fill a chunk up where its shape or statistics matter."""
        mine = self.group.span(len(rows))
        uniform = random.uniform(purpose, self.count, self.chunk_size, SIMPLE_UNIFORMS)[:, mine.start :]
        images = pool.take(rows[mine])
        size = len(images)
        if not size:
            widths = (self.net.num_features, self.context.classes)
            return uniform.new_zeros(self.count, 0, widths[0]), uniform.new_zeros(self.count, 0, widths[1])
        if self.batch_statistics or self.compiled:
            images = torch.cat([images, pool.take(spare[: self.chunk_size - size])])
        with batch_norm.evaluating(self.net, self.batch_statistics):
            features, probs = self.encode(images, uniform[:, : len(images)])
        return features[:, :size], probs[:, :size]

    def _encode(self, images: Tensor, uniform: Tensor) -> Chunk:
        views = len(uniform)
        x = self.views.simple(images.repeat(views, 1, 1, 1), uniform.flatten(0, 1))
        with self.context.autocast():
            features, logits = self.net(x)
        unit = torch.nn.functional.normalize(features.float(), dim=1)
        return unit.unflatten(0, (views, -1)), logits.float().softmax(1).unflatten(0, (views, -1))
