"""From images that are found to a task: every image that a run needs is decoded, checked and described."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proud.data.alike import Compared, across
from proud.data.cache import NEVER, cache_folder, request_states
from proud.data.catalog import Catalog, DomainFiles
from proud.data.checks import (
    ImageRow,
    also_learned_from,
    held_out_too_many,
    nearly_black,
    on_both_sides,
    shared_groups,
    under_two_classes,
)
from proud.data.decode import PixelFormat, bad_files_error, stored_side
from proud.data.labels import add_labels, with_known
from proud.data.near_copies import SMALLEST_SIDE, signatures
from proud.data.reader import MemoryCache, Reader
from proud.data.roles import Roles, unknown_classes
from proud.data.shapes import cropped_away
from proud.data.source import TaskSource, without_gc
from proud.data.splits import mark, split_labeled
from proud.data.types import Audit, EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
from proud.errors import UserError
from proud.stored import DomainRecord, TaskRecord

LEAST_SIDE = 8
MOST_COMPARED = 300_000  # images of a run: to look for near-copies among more takes minutes


def read_task(
    source: TaskSource,
    size: int,
    *,
    progress: bool = False,
    memory: MemoryCache | None = None,
    disk: str = NEVER,
    verify: bool = False,
    held_out: Collection[str] = (),
) -> Task:
    """Decode everything that one run needs, for a network that sees squares of `size` pixels.

    With `memory`, every domain is read at most once. `disk` is a folder for decoded images that are mapped rather
    than held in memory, `auto` (many images only) or `none`; `verify` compares all of them with their files.
    `held_out`: marks of the validation images of the model that the run starts from.
    """
    spec, catalog, roles = source.spec, source.catalog, source.roles
    if size < LEAST_SIDE:
        raise UserError(f"--size {size} is too small: images need at least {LEAST_SIDE} × {LEAST_SIDE} pixels")
    named = {domain.name for domain in roles.domains}
    for name, text in catalog.notices.items():
        if not spec.unlabeled or name in named:
            catalog.warn_once(text, "folder", name)
    with without_gc():
        reader, parts = _decode(source, size, progress, memory, disk, verify, held_out)
    if reader.bad and not spec.skip_bad:
        raise bad_files_error(reader.bad)
    parts.check_survivors()
    for domain in parts.domains:
        if text := nearly_black(domain.name, domain.images):
            warnings.warn(text, stacklevel=2)
    for files in roles.domains if spec.square == "middle" else ():
        catalog.warn_once(cropped_away(catalog, files), "cropped", files.name)
    copies = parts.test_copies(reader)
    _warn_about_rows(catalog, roles, reader, parts, copies)
    if any(row.entry.group for row in parts.held) and not roles.labeled.ships_split:
        per_class = Counter(row.entry.label for row in [*parts.held, *parts.train]).values()
        text = held_out_too_many(roles.labeled.name, len(parts.held), per_class, spec.val)
        catalog.warn_once(text, "held out", roles.labeled.name)
    _warn_about_near_copies(source, reader, parts)
    training = TrainingData(roles.classes, parts.labeled, tuple(domain for domain, _ in parts.hidden))
    audits = {audit.name: audit for _, audit in parts.hidden}
    report = _report(source, size, parts, reader, copies)
    task = Task(training, EvaluationData(parts.validation, parts.test, audits), size, report)
    # those of a pool are added when its sites are found
    return (
        add_labels(task, source.labels, spec.labels or "labels") if source.labels and not spec.unlabeled_pool else task
    )


@dataclass(frozen=True)
class _Parts:
    """The decoded domains, and the rows they are made of."""

    rows: dict[str, list[ImageRow]]
    train: list[ImageRow]
    held: list[ImageRow]
    labeled: LabeledDomain
    validation: LabeledDomain | None
    hidden: list[tuple[UnlabeledDomain, Audit]]
    test: LabeledDomain | None

    @property
    def domains(self) -> list[LabeledDomain | UnlabeledDomain]:
        return [self.labeled, *([self.test] if self.test else []), *(domain for domain, _ in self.hidden)]

    def check_survivors(self) -> None:
        """After bad files and held-out shares are gone, is everything still there?"""
        present = set(self.labeled.labels.tolist())
        gone = [label for number, label in enumerate(self.labeled.classes) if number not in present]
        if gone:
            raise UserError(
                f"No usable training images for {', '.join(gone)} in the labeled domain {self.labeled.name!r}"
            )
        for domain in self.domains:
            if not len(domain):
                raise UserError(f"No usable images are left in the domain {domain.name!r}")

    def test_copies(self, reader: Reader) -> int:
        """How many test images are also trained on."""
        if self.test is None:
            return 0
        trained_on = {row.content for row in reader.readable(self.train)}
        trained_on.update(content for domain, _ in self.hidden for content in domain.ids)
        return sum(row.content in trained_on for row in reader.readable(self.rows[self.test.name]))


def _decode(
    source: TaskSource,
    size: int,
    progress: bool,
    memory: MemoryCache | None,
    disk: str,
    verify: bool,
    held_out: Collection[str],
) -> tuple[Reader, _Parts]:
    spec, catalog, roles = source.spec, source.catalog, source.roles
    files = [domain for domain in roles.domains if not domain.in_memory]
    pixels = PixelFormat(stored_side(size), spec.square, spec.max_pixels)
    folder = cache_folder(disk, sum(len(domain.entries) for domain in files) * 3 * pixels.side**2)
    with request_states(catalog, files if folder else ()) as states:
        reader = Reader(catalog, pixels, progress, memory, folder, states, verify)
        rows = {roles.labeled.name: reader.ordered(roles.labeled)}
        train, held = split_labeled(
            rows[roles.labeled.name], spec.val, spec.seed, ships_split=roles.labeled.ships_split, before=held_out
        )
        labeled = reader.labeled(roles.labeled, train, roles.classes)
        validation = reader.labeled(roles.labeled, held, roles.classes) if held else None
        hidden = [reader.unlabeled(domain, roles.classes) for domain in roles.unlabeled]
        test: LabeledDomain | None = None
        if roles.test is not None:
            rows[roles.test.name] = reader.ordered(roles.test)
            test = reader.labeled(roles.test, rows[roles.test.name], roles.classes)
        rows |= {domain.name: reader.ordered(domain) for domain in roles.unlabeled}
    return reader, _Parts(rows, train, held, labeled, validation, hidden, test)


def _warn_about_rows(catalog: Catalog, roles: Roles, reader: Reader, parts: _Parts, copies: int) -> None:
    """Copies and unknown classes. Nothing that is trained on depends on it."""
    name = roles.labeled.name
    every, train, held = (reader.readable(rows) for rows in (parts.rows[name], parts.train, parts.held))
    catalog.warn_once(on_both_sides(name, train, held), "on both sides", name)
    catalog.warn_once(under_two_classes(name, every), "two classes", name)
    groups = {row.entry.group for row in train}
    text = shared_groups(name, (row.entry.group for row in held), groups, "the validation images of")
    catalog.warn_once(text, "groups", name)
    groups |= {row.entry.group for domain in roles.unlabeled for row in parts.rows[domain.name]}
    for files in roles.unlabeled:
        catalog.warn_once(unknown_classes(files, name, roles.classes), "unknown classes", name, files.name)
    if parts.test is not None:
        text = also_learned_from(parts.test.name, copies, len(parts.test))
        catalog.warn_once(text, "also learned from", name, parts.test.name)
        tested = (row.entry.group for row in parts.rows[parts.test.name])
        catalog.warn_once(shared_groups(parts.test.name, tested, groups, "the domain"), "groups", parts.test.name)


def _warn_about_near_copies(source: TaskSource, reader: Reader, parts: _Parts) -> None:
    """Once for the labeled and the unseen domain of a catalog: other seeds only draw other validation images."""
    key = ("near-copies", parts.labeled.name, "" if parts.test is None else parts.test.name)
    small = min(source.native_side, parts.labeled.images.shape[-1]) < SMALLEST_SIDE
    if small or key in source.catalog.warned or sum(map(len, parts.domains)) > MOST_COMPARED:
        return
    source.catalog.warned.add(key)

    def compared(domain: LabeledDomain, rows: list[ImageRow]) -> Compared:
        known = reader.readable(rows)
        places, contents = [row.entry.location for row in known], [row.content for row in known]
        return Compared(domain.name, places, contents, signatures(domain.images))

    trained = [compared(parts.labeled, parts.train)]
    if parts.validation is not None:
        text = across(compared(parts.validation, parts.held), trained, "validation images of")
        source.catalog.warn_once(text, *key, "validation")
    if parts.test is not None:
        trained += [Compared(each.name, audit.paths, each.ids, signatures(each.images)) for each, audit in parts.hidden]
        text = across(compared(parts.test, parts.rows[parts.test.name]), trained, "images of")
        source.catalog.warn_once(text, *key, "test")


# ---- the task's description in run.json


def _report(source: TaskSource, size: int, parts: _Parts, reader: Reader, copies: int) -> TaskRecord:
    spec, catalog = source.spec, source.catalog
    labeled, test, hidden = parts.labeled, parts.test, zip(source.roles.unlabeled, parts.hidden, strict=True)
    content = {labeled.name: digest(f"{row.content} {row.entry.label}" for row in parts.rows[labeled.name])}
    content |= {domain.name: digest([*domain.ids, *pixel_hash(files, domain)]) for files, (domain, _) in hidden}
    if test is not None:
        content[test.name] = digest(f"{row.content} {row.entry.label}" for row in parts.rows[test.name])
    report: TaskRecord = {
        "data": catalog.where,
        "benchmark": catalog.benchmark,
        "size": size,
        "square": spec.square,
        "stored_side": reader.pixels.side,
        "classes": list(source.roles.classes),
        "domains": _domains(parts),
        "content": content,
        "pictures": {name: digest(row.content for row in rows) for name, rows in parts.rows.items()},
        "skipped": [{"path": file.path, "reason": file.reason} for file in reader.bad],
        "ignored_links": list(catalog.ignored_links),
        "test_images_also_in_training": copies,
    }
    if parts.held:
        report["held_out"] = sorted(mark(row) for row in parts.held if row.content)
    if reader.disk is not None:
        report["mapped_from_cache"] = True
    return report


def _domains(parts: _Parts) -> dict[str, DomainRecord]:
    report: dict[str, DomainRecord] = {
        parts.labeled.name: {
            "role": "labeled",
            "images": len(parts.labeled),
            "validation": 0 if parts.validation is None else len(parts.validation),
            "per_class": _per_class(parts.labeled),
            "validation_per_class": {} if parts.validation is None else _per_class(parts.validation),
        }
    }
    for domain, audit in parts.hidden:
        about: DomainRecord = {"role": "unlabeled", "images": len(domain), "audited": audit.known}
        report[domain.name] = with_known(about, domain)
    if parts.test is not None:
        report[parts.test.name] = {"role": "test", "images": len(parts.test), "per_class": _per_class(parts.test)}
    return report


def _per_class(domain: LabeledDomain) -> dict[str, int]:
    counts = Counter(domain.labels.tolist())
    return {label: counts[number] for number, label in enumerate(domain.classes)}


def digest(parts: Iterable[str]) -> str:
    """Changes with any image or label, and with their order."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def pixel_hash(files: DomainFiles, domain: UnlabeledDomain) -> list[str]:
    """The ids of a domain that was handed over ready need not be hashes of its content."""
    return [hashlib.sha256(domain.images.contiguous().numpy().data).hexdigest()] if files.ready is not None else []
