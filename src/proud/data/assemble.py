"""From a catalog to a task: who is labeled, who is not, what is held out, and every image decoded."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proud.config import Square
from proud.data.cache import NEVER, MappedDomain, ask, cache_folder, map_domain
from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.data.copies import Row, also_learned_from, copies_of, on_both_sides, under_two_classes
from proud.data.domain import UNKNOWN, Audit, EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
from proud.data.light import nearly_black
from proud.data.native import cut_off
from proud.data.roles import Roles, assign_roles, unknown_classes, where
from proud.data.states import Asked
from proud.data.store import BadFile, bad_files_error, decode_all, hash_all, stored_side
from proud.errors import UserError

VALIDATION_STREAM = 0x76616C
"""Sets the validation draw apart from every other use of the same seed."""


class WholeDomain(NamedTuple):
    """A domain read once for many tasks: all rows by content, the images of the readable ones, and the others."""

    rows: list[Row]
    images: Tensor
    places: dict[Entry, int]
    bad: dict[Entry, BadFile]


Cache = dict[tuple[str, int, Square], WholeDomain]
"""(domain, stored side, in which square) → its images. Whoever makes many tasks of one catalog keeps one of these."""


def assemble(
    catalog: Catalog,
    *,
    labeled: str,
    test: str | None,
    unlabeled: Sequence[str] | None = None,
    size: int,
    square: Square = "middle",
    val: float = 0.1,
    seed: int,
    skip_bad: bool = False,
    progress: bool = False,
    cache: Cache | None = None,
    disk: str = NEVER,
) -> Task:
    """Decode everything that one run needs.

    `unlabeled` None takes all the other domains. `val` is the share of the labeled domain kept for validation (0:
    none); a split that the data set ships takes its place. With a `cache` every domain is read at most once. `disk`
    is a folder for decoded images that are mapped rather than held in memory, `auto` (many images only) or `none`.
    """
    check_numbers(size, val)
    roles = assign_roles(catalog, labeled, unlabeled, test)
    read = {domain.name for domain in (roles.labeled, *roles.unlabeled, roles.test) if domain}
    for name, text in catalog.notices.items():
        if unlabeled is None or name in read:
            catalog.tell(text, "folder", name)
    everything: dict[str, Any] = {"size": size, "val": val, "seed": seed, "skip_bad": skip_bad, "progress": progress}
    return build_task(catalog, roles, square=square, **everything, cache=cache, disk=disk)


def build_task(
    catalog: Catalog,
    roles: Roles,
    *,
    size: int,
    square: Square = "middle",
    val: float,
    seed: int,
    skip_bad: bool,
    progress: bool,
    cache: Cache | None = None,
    disk: str = NEVER,
) -> Task:
    domains = (roles.labeled, *roles.unlabeled, *([roles.test] if roles.test else []))
    images = sum(len(domain.entries) for domain in domains if domain.pixels is None)
    pixel_bytes = images * 3 * stored_side(size) ** 2
    disk_folder = cache_folder(disk, pixel_bytes)
    with ask(catalog, domains if disk_folder else ()) as asked:
        reader = _Reader(catalog, stored_side(size), square, progress, cache, disk_folder, asked)
        labeled = reader.ordered(roles.labeled)
        train, held = split_labeled(labeled, val, seed, ships_split=roles.labeled.ships_split)
        training_domain = reader.labeled(roles.labeled, train, roles.classes)
        validation = reader.labeled(roles.labeled, held, roles.classes) if held else None
        hidden = [reader.unlabeled(domain, roles.classes) for domain in roles.unlabeled]
        test_rows = reader.ordered(roles.test) if roles.test else []
        test = reader.labeled(roles.test, test_rows, roles.classes) if roles.test else None
    if reader.bad and not skip_bad:
        raise bad_files_error(reader.bad)
    _check_survivors(training_domain, hidden, test)
    read = {domain.name: domain.images for domain in (training_domain, *([test] if test else []))}
    for name, seen in (read | {domain.name: domain.images for domain, _ in hidden}).items():
        if text := nearly_black(name, seen):
            warnings.warn(text, stacklevel=2)
    for files in (roles.labeled, *roles.unlabeled, *([roles.test] if roles.test else [])):
        if square == "middle":
            catalog.tell(cut_off(catalog, files), "cut off", files.name)
    every = {roles.labeled.name: labeled} | {domain.name: reader.ordered(domain) for domain in roles.unlabeled}
    every |= {roles.test.name: test_rows} if roles.test else {}
    hidden_ids = (domain.ids for domain, _ in hidden if test_rows)
    trained_on = {row.content for row in reader.readable(train)}.union(*hidden_ids)
    seen_before = sum(row.content in trained_on for row in reader.readable(test_rows))
    text = on_both_sides(roles.labeled.name, reader.readable(train), reader.readable(held))
    catalog.tell(text, "on both sides", roles.labeled.name)
    catalog.tell(under_two_classes(roles.labeled.name, reader.readable(labeled)), "two classes", roles.labeled.name)
    for files in roles.unlabeled:
        text = unknown_classes(files, roles.labeled.name, roles.classes)
        catalog.tell(text, "unknown classes", roles.labeled.name, files.name)
    if test is not None:
        text = also_learned_from(test.name, seen_before, len(test))
        catalog.tell(text, "also learned from", roles.labeled.name, test.name)
    report = {
        "data": where(catalog),
        "benchmark": catalog.benchmark,
        "size": size,
        "square": square,
        "stored_side": reader.side,
        "classes": list(roles.classes),
        "domains": _domain_report(training_domain, validation, hidden, test),
        "content": {training_domain.name: digest(f"{row.content} {row.entry.label}" for row in labeled)}
        | {domain.name: digest(domain.ids) for domain, _ in hidden}
        | ({test.name: digest(f"{row.content} {row.entry.label}" for row in test_rows)} if test else {}),
        "pictures": {name: digest(row.content for row in rows) for name, rows in every.items()},
        "skipped": [file._asdict() for file in reader.bad],
        "ignored_links": list(catalog.ignored_links),
        "test_images_also_in_training": seen_before,
    }
    if reader.disk is not None:
        report["mapped_from_cache"] = True
    return Task(
        training=TrainingData(roles.classes, training_domain, tuple(domain for domain, _ in hidden)),
        evaluation=EvaluationData(validation, test, {audit.name: audit for _, audit in hidden}),
        size=size,
        report=report,
    )


def check_numbers(size: int, val: float) -> None:
    if size < 8:
        raise UserError(f"--size {size} is too small: images need at least 8 × 8 pixels")
    if not 0 <= val < 1:
        raise UserError(f"--val {val} must be a share from 0 (no validation) to below 1")


def split_labeled(rows: list[Row], val: float, seed: int, *, ships_split: bool) -> tuple[list[Row], list[Row]]:
    """(train, validation). Drawn per class: its share, at least one, but never a class's only image.

    Copies of one image are drawn as one; those that stand under two classes are trained on.
    """
    if ships_split:
        held = [row for row in rows if row.entry.split == "val"]
        return [row for row in rows if row.entry.split == "train"], held if val > 0 else []
    if val == 0:
        return rows, []
    with_it: dict[int, list[int]] = {}
    not_drawn: set[int] = set()
    for places in copies_of(rows):
        of_one_class = len({rows[place].entry.label for place in places}) == 1
        not_drawn.update(places[1:] if of_one_class else places)
        with_it[places[0]] = places
    by_class: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if place not in not_drawn:
            by_class.setdefault(row.entry.label or "", []).append(place)
    random = np.random.default_rng([VALIDATION_STREAM, seed])
    chosen: set[int] = set()
    for label in sorted(by_class):
        places = by_class[label]
        count = min(max(1, round(len(places) * val)), len(places) - 1)
        for place in random.permutation(places)[:count].tolist():
            chosen.update(with_it.get(place, [place]))
    train = [row for place, row in enumerate(rows) if place not in chosen]
    return train, [row for place, row in enumerate(rows) if place in chosen]


def split_unlabeled(rows: list[Row], held_out: float | None, *, ships_split: bool) -> list[Row]:
    """The rows to train on. Without a shipped split, the content's hash decides: no hidden label can shape it."""
    if ships_split:
        return [row for row in rows if row.entry.split == "train"]
    if held_out is None:
        return rows
    return [row for row in rows if not row.content or int(row.content[:8], 16) / 2**32 >= held_out]


@dataclass
class _Reader:
    """Hashes and decodes domains of one catalog, and remembers what was bad."""

    catalog: Catalog
    side: int
    square: Square
    progress: bool
    cache: Cache | None = None
    disk: Path | None = None
    asked: Asked | None = None
    bad: list[BadFile] = field(default_factory=list)
    mapped: dict[str, tuple[list[Row], MappedDomain]] = field(default_factory=dict)
    hashed: dict[str, list[Row]] = field(default_factory=dict)

    def ordered(self, domain: DomainFiles) -> list[Row]:
        """All images of a domain by content, so that no name and no folder has a say in the order."""
        if self._is_mapped(domain):
            return self._map(domain)[0]
        if self.cache is not None:
            return self._whole(domain).rows
        if domain.name not in self.hashed:
            self.hashed[domain.name] = self._hash(domain)
        return self.hashed[domain.name]

    def readable(self, rows: list[Row]) -> list[Row]:
        """Without the files that were found to be bad."""
        bad = {file.path for file in self.bad}
        return [row for row in rows if row.entry.location not in bad] if bad else rows

    def _is_mapped(self, domain: DomainFiles) -> bool:
        return self.disk is not None and domain.pixels is None

    def _map(self, domain: DomainFiles) -> tuple[list[Row], MappedDomain]:
        assert self.disk is not None
        if domain.name not in self.mapped:
            found = map_domain(self.catalog, domain, self.side, self.disk, self.progress, self.asked, self.square)
            rows = list(map(Row, found.contents, map(domain.entries.__getitem__, found.order)))
            self.mapped[domain.name] = rows, found
        return self.mapped[domain.name]

    def _decode_mapped(self, domain: DomainFiles, rows: list[Row]) -> tuple[Tensor, list[Row]]:
        """`rows` are some of the domain's own, in their order."""
        every, found = self._map(domain)
        if len(rows) == len(every) and not found.bad:
            return found.images, every
        left = enumerate(every)
        places = [next(place for place, row in left if row is wanted) for wanted in rows]
        self.bad.extend(BadFile(every[at].entry.location, found.bad[at]) for at in places if at in found.bad)
        kept = [place for place in places if place not in found.bad]
        return found.take(kept), [every[place] for place in kept]

    def _hash(self, domain: DomainFiles) -> list[Row]:
        sources = [self.catalog.source(domain, entry) for entry in domain.entries]
        contents = hash_all(sources, progress=self.progress, description=f"Reading {domain.name}")
        rows = [Row(content, entry) for content, entry in zip(contents, domain.entries, strict=True)]
        return sorted(rows, key=lambda row: (row.content, row.entry.label or "", row.entry.location))

    def labeled(self, domain: DomainFiles, rows: list[Row], classes: tuple[str, ...]) -> LabeledDomain:
        images, rows = self._decode(domain, rows)
        return LabeledDomain(domain.name, images, class_numbers(rows, classes), classes)

    def unlabeled(self, domain: DomainFiles, classes: tuple[str, ...]) -> tuple[UnlabeledDomain, Audit]:
        rows = split_unlabeled(self.ordered(domain), self.catalog.held_out, ships_split=domain.ships_split)
        images, rows = self._decode(domain, rows)
        audit = Audit(domain.name, class_numbers(rows, classes), tuple(row.entry.location for row in rows))
        return UnlabeledDomain(domain.name, images, tuple(row.content for row in rows)), audit

    def _decode(self, domain: DomainFiles, rows: list[Row]) -> tuple[Tensor, list[Row]]:
        if self._is_mapped(domain):
            return self._decode_mapped(domain, rows)
        if self.cache is None:
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
        assert self.cache is not None
        key = (domain.name, self.side, self.square)
        if key not in self.cache:
            rows = self._hash(domain)
            images, kept, bad = self._decode_rows(domain, rows)
            places = {row.entry: place for place, row in enumerate(kept)}
            lost = (row.entry for row in rows if row.entry not in places)
            self.cache[key] = WholeDomain(rows, images, places, dict(zip(lost, bad, strict=True)))
        return self.cache[key]

    def _decode_rows(self, domain: DomainFiles, rows: list[Row]) -> tuple[Tensor, list[Row], list[BadFile]]:
        images, kept, bad = decode_all(
            [self.catalog.source(domain, row.entry) for row in rows],
            self.side,
            square=self.square,
            skip_bad=True,  # all domains are looked at first, then one error names every bad file
            progress=self.progress,
            description=f"Decoding {domain.name}",
            names=[
                row.entry.location if domain.pixels is None else f"{domain.name} {row.entry.location}" for row in rows
            ],
        )
        return images, [rows[place] for place in kept], bad


def class_numbers(rows: Sequence[Row], classes: tuple[str, ...]) -> Tensor:
    number: dict[str | None, int] = {label: place for place, label in enumerate(classes)}
    return torch.tensor([number.get(entry.label, UNKNOWN) for _, entry in rows], dtype=torch.int64)


def _check_survivors(
    labeled: LabeledDomain, hidden: Sequence[tuple[UnlabeledDomain, Audit]], test: LabeledDomain | None
) -> None:
    """After bad files and held-out shares are gone, is everything still there?"""
    present = set(labeled.labels.tolist())
    gone = [label for number, label in enumerate(labeled.classes) if number not in present]
    if gone:
        raise UserError(f"No usable training images for {', '.join(gone)} in the labeled domain {labeled.name!r}")
    for domain in (*(unlabeled for unlabeled, _ in hidden), test):
        if domain is not None and not len(domain):
            raise UserError(f"No usable images are left in the domain {domain.name!r}")


def digest(parts: Iterable[str]) -> str:
    """Changes with any image (or label) that is learned from, and with their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _domain_report(
    labeled: LabeledDomain,
    validation: LabeledDomain | None,
    hidden: Sequence[tuple[UnlabeledDomain, Audit]],
    test: LabeledDomain | None,
) -> dict[str, dict[str, Any]]:
    report: dict[str, dict[str, Any]] = {
        labeled.name: {
            "role": "labeled",
            "images": len(labeled),
            "validation": 0 if validation is None else len(validation),
            "per_class": _per_class(labeled),
        }
    }
    for domain, audit in hidden:
        report[domain.name] = {"role": "unlabeled", "images": len(domain), "audited": audit.known}
    if test is not None:
        report[test.name] = {"role": "test", "images": len(test), "per_class": _per_class(test)}
    return report


def _per_class(domain: LabeledDomain) -> dict[str, int]:
    counts = Counter(domain.labels.tolist())
    return {label: counts[number] for number, label in enumerate(domain.classes)}
