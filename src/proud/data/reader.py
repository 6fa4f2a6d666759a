"""Images of one catalog, hashed and decoded: afresh, once for many tasks, or mapped from a cache on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from proud.data.arrays import channels_last
from proud.data.cache import MappedDomain, map_domain
from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.data.checks import ImageRow
from proud.data.decode import BadFile, PixelFormat, decode_all, hash_all
from proud.data.file_states import PendingStates
from proud.data.splits import split_unlabeled
from proud.data.types import UNKNOWN, Audit, LabeledDomain, UnlabeledDomain
from proud.errors import UserError


class WholeDomain(NamedTuple):
    """A domain read once for many tasks: all rows by content, the images of the readable ones, and the others."""

    rows: list[ImageRow]
    images: Tensor
    places: dict[Entry, int]
    bad: dict[Entry, BadFile]


MemoryCache = dict[tuple[str, PixelFormat], WholeDomain]
"""(domain, format) → its images: shared by many tasks of one catalog."""


@dataclass
class Reader:
    """Hashes and decodes domains of one catalog, and remembers what was bad."""

    catalog: Catalog
    pixels: PixelFormat
    progress: bool
    memory: MemoryCache | None = None
    disk: Path | None = None
    states: PendingStates | None = None
    verify: bool = False
    bad: list[BadFile] = field(default_factory=list)
    mapped: dict[str, tuple[list[ImageRow], MappedDomain]] = field(default_factory=dict)
    hashed: dict[str, list[ImageRow]] = field(default_factory=dict)

    def ordered(self, domain: DomainFiles) -> list[ImageRow]:
        """All images of a domain, sorted by content: names and folders have no influence on the order."""
        if domain.ready is not None:
            return [ImageRow(content, entry) for content, entry in zip(domain.ready.ids, domain.entries, strict=True)]
        if self._is_mapped(domain):
            return self._map(domain)[0]
        if self.memory is not None:
            return self._whole(domain).rows
        if domain.name not in self.hashed:
            self.hashed[domain.name] = self._hash(domain)
        return self.hashed[domain.name]

    def readable(self, rows: list[ImageRow]) -> list[ImageRow]:
        """Without the files that were found to be bad."""
        bad = {file.path for file in self.bad}
        return [row for row in rows if row.entry.location not in bad] if bad else rows

    def _is_mapped(self, domain: DomainFiles) -> bool:
        return self.disk is not None and not domain.in_memory

    def _map(self, domain: DomainFiles) -> tuple[list[ImageRow], MappedDomain]:
        assert self.disk is not None
        if domain.name not in self.mapped:
            found = map_domain(self.catalog, domain, self.pixels, self.disk, self.progress, self.states, self.verify)
            rows = list(map(ImageRow, found.contents, map(domain.entries.__getitem__, found.order)))
            self.mapped[domain.name] = rows, found
        return self.mapped[domain.name]

    def _decode_mapped(self, domain: DomainFiles, rows: list[ImageRow]) -> tuple[Tensor, list[ImageRow]]:
        """`rows` are some of the domain's own, in their order."""
        every, found = self._map(domain)
        if len(rows) == len(every) and not found.bad:
            return found.images, every
        left = enumerate(every)
        places = [next(place for place, row in left if row is wanted) for wanted in rows]
        self.bad.extend(BadFile(every[at].entry.location, found.bad[at]) for at in places if at in found.bad)
        kept = [place for place in places if place not in found.bad]
        return found.take(kept), [every[place] for place in kept]

    def _hash(self, domain: DomainFiles) -> list[ImageRow]:
        contents = hash_all(self.catalog.sources(domain), progress=self.progress, description=f"Reading {domain.name}")
        rows = [ImageRow(content, entry) for content, entry in zip(contents, domain.entries, strict=True)]
        return sorted(rows, key=lambda row: (row.content, row.entry.label or "", row.entry.location))

    def labeled(self, domain: DomainFiles, rows: list[ImageRow], classes: tuple[str, ...]) -> LabeledDomain:
        images, rows = self._decode(domain, rows)
        groups = tuple(row.entry.group for row in rows)
        labels = class_numbers(rows, classes)
        return LabeledDomain(domain.name, images, labels, classes, groups if any(groups) else None)

    def unlabeled(self, domain: DomainFiles, classes: tuple[str, ...]) -> tuple[UnlabeledDomain, Audit]:
        if domain.ready is not None:
            found = self._at_side(domain.ready)
            if found.known is not None and int(found.known.max()) >= len(classes):
                raise UserError(f"The known labels of {found.name!r} exceed the {len(classes)} classes")
            return found, Audit(found.name, torch.full((len(found),), UNKNOWN), found.ids)
        rows = split_unlabeled(self.ordered(domain), self.catalog.held_out, ships_split=domain.ships_split)
        images, rows = self._decode(domain, rows)
        audit = Audit(domain.name, class_numbers(rows, classes), tuple(row.entry.location for row in rows))
        return UnlabeledDomain(domain.name, images, tuple(row.content for row in rows)), audit

    def _at_side(self, domain: UnlabeledDomain) -> UnlabeledDomain:
        if domain.images.shape[-1] == self.pixels.side:
            return domain
        images, _, _ = decode_all(list(channels_last(domain.name, domain.images)), self.pixels)
        return replace(domain, images=images)

    def _decode(self, domain: DomainFiles, rows: list[ImageRow]) -> tuple[Tensor, list[ImageRow]]:
        if self._is_mapped(domain):
            return self._decode_mapped(domain, rows)
        if self.memory is None:
            images, kept, bad = self._decode_rows(domain, rows)
            self.bad.extend(bad)
            return images, kept
        whole = self._whole(domain)
        self.bad.extend(whole.bad[row.entry] for row in rows if row.entry in whole.bad)
        kept = [row for row in rows if row.entry in whole.places]
        if len(kept) == len(whole.images):
            return whole.images, kept
        return whole.images[[whole.places[row.entry] for row in kept]], kept

    def _whole(self, domain: DomainFiles) -> WholeDomain:
        assert self.memory is not None
        key = (domain.name, self.pixels)
        if key not in self.memory:
            rows = self._hash(domain)
            images, kept, bad = self._decode_rows(domain, rows)
            places = {row.entry: place for place, row in enumerate(kept)}
            lost = (row.entry for row in rows if row.entry not in places)
            self.memory[key] = WholeDomain(rows, images, places, dict(zip(lost, bad, strict=True)))
        return self.memory[key]

    def _decode_rows(self, domain: DomainFiles, rows: list[ImageRow]) -> tuple[Tensor, list[ImageRow], list[BadFile]]:
        images, kept, bad = decode_all(
            [self.catalog.source(domain, row.entry) for row in rows],
            self.pixels,
            skip_bad=True,  # all domains are looked at first, then one error names every bad file
            progress=self.progress,
            description=f"Decoding {domain.name}",
            names=[
                row.entry.location if domain.pixels is None else f"{domain.name} {row.entry.location}" for row in rows
            ],
        )
        return images, [rows[place] for place in kept], bad


def class_numbers(rows: Sequence[ImageRow], classes: tuple[str, ...]) -> Tensor:
    number: dict[str | None, int] = {label: place for place, label in enumerate(classes)}
    return torch.tensor([number.get(entry.label, UNKNOWN) for _, entry in rows], dtype=torch.int64)
