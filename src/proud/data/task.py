"""From a catalog to a task: who is labeled, who is not, what is held out, and every image decoded."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from proud.config import Square
from proud.data.cache import NEVER, ask, cache_folder
from proud.data.catalog import Catalog
from proud.data.copies import Row, also_learned_from, on_both_sides, under_two_classes
from proud.data.types import Audit, EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
from proud.data.light import nearly_black
from proud.data.native import cut_off
from proud.data.reader import Cache, Reader
from proud.data.roles import Roles, assign_roles, unknown_classes, where
from proud.data.splits import split_labeled
from proud.data.decode import bad_files_error, stored_side
from proud.errors import UserError


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
        reader = Reader(catalog, stored_side(size), square, progress, cache, disk_folder, asked)
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
    every = {roles.labeled.name: labeled} | {domain.name: reader.ordered(domain) for domain in roles.unlabeled}
    every |= {roles.test.name: test_rows} if roles.test else {}
    hidden_ids = (domain.ids for domain, _ in hidden if test_rows)
    trained_on = {row.content for row in reader.readable(train)}.union(*hidden_ids)
    seen_before = sum(row.content in trained_on for row in reader.readable(test_rows))
    for files in domains if square == "middle" else ():
        catalog.tell(cut_off(catalog, files), "cut off", files.name)
    all_labeled, trained, validated = (reader.readable(rows) for rows in (labeled, train, held))
    tell_of_rows(catalog, roles, all_labeled, trained, validated, seen_before, 0 if test is None else len(test))
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


def tell_of_rows(
    catalog: Catalog,
    roles: Roles,
    labeled: Sequence[Row],
    train: Sequence[Row],
    held: Sequence[Row],
    also_in_test: int,
    tested: int,
) -> None:
    """Copies and classes that the user should know of. Nothing that is trained on depends on it."""
    name = roles.labeled.name
    catalog.tell(on_both_sides(name, train, held), "on both sides", name)
    catalog.tell(under_two_classes(name, labeled), "two classes", name)
    for files in roles.unlabeled:
        catalog.tell(unknown_classes(files, name, roles.classes), "unknown classes", name, files.name)
    if roles.test is not None:
        text = also_learned_from(roles.test.name, also_in_test, tested)
        catalog.tell(text, "also learned from", name, roles.test.name)


def check_numbers(size: int, val: float) -> None:
    if size < 8:
        raise UserError(f"--size {size} is too small: images need at least 8 × 8 pixels")
    if not 0 <= val < 1:
        raise UserError(f"--val {val} must be a share from 0 (no validation) to below 1")


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
