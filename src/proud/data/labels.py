"""Labels that a person added to unlabeled images, joined to the images they belong to.

A row names an image by its content's hash or by its path. The labels become `UnlabeledDomain.known`; they never join
the labeled domain, and the paths stay behind. The sites that are found in a pool change with it, with the seed and with
their number: rows that name one of them, or a domain that is not in the run, are looked up in all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from proud.data.csv_table import LabelRow
from proud.data.types import UNKNOWN, Audit, Task, UnlabeledDomain
from proud.errors import UserError
from proud.stored import DomainRecord
from proud.text import listed, some


def add_labels(task: Task, rows: Sequence[LabelRow], table: Path | str) -> Task:
    """The task with these labels among its unlabeled images. All problems of the table are reported at once."""
    problems: list[str] = []
    sites = {domain.name: domain for domain in task.training.unlabeled}
    numbers = {label: k for k, label in enumerate(task.training.classes)}
    by_domain: dict[str, list[LabelRow]] = {}
    pool = _places_in_pool(task)
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        about = task.report["domains"].get(row.domain)
        moved = pool.get(row.content) or pool.get(row.path) if about is None or about.get("found") else None
        site = moved or row.domain
        if site not in sites:
            what = f"is the {about['role']} domain" if about else "is not in this run"
            problems.append(f"line {row.line}: {row.domain!r} {what}; unlabeled ones are: {some(sites)}")
        elif row.label not in numbers:
            known = some(task.training.classes)
            problems.append(f"line {row.line}: the class {row.label!r} is unknown; the labeled domain has: {known}")
        elif moved is None or (row.path, row.content, row.label) not in seen:  # it may be listed under several sites
            by_domain.setdefault(site, []).append(row)
            seen.add((row.path, row.content, row.label))
    labeled = {
        name: _join(sites[name], task.evaluation.audits[name], stated, numbers, problems)
        for name, stated in by_domain.items()
    }
    if problems:
        raise UserError(listed(problems, table))
    unlabeled = tuple(labeled.get(domain.name, domain) for domain in task.training.unlabeled)
    domains = {name: with_known(about, labeled.get(name)) for name, about in task.report["domains"].items()}
    training = replace(task.training, unlabeled=unlabeled)
    return replace(task, training=training, report={**task.report, "domains": domains})


def _places_in_pool(task: Task) -> dict[str, str]:
    """Content and path of every image of a pool → the site that it was found to be in."""
    places: dict[str, str] = {}
    for domain in task.training.unlabeled:
        if task.report["domains"][domain.name].get("found"):
            images = (*domain.ids, *task.evaluation.audits[domain.name].paths)
            places |= dict.fromkeys(images, domain.name)
    return places


def _join(
    domain: UnlabeledDomain, audit: Audit, rows: list[LabelRow], numbers: dict[str, int], problems: list[str]
) -> UnlabeledDomain:
    """Rows with the same content are the same image: one label is enough, and two must agree."""
    rows_of: dict[str, list[int]] = {}
    for place, image in enumerate(domain.ids):
        rows_of.setdefault(image, []).append(place)
    content_of = dict(zip(audit.paths, domain.ids, strict=True))
    known = torch.full((len(domain),), UNKNOWN) if domain.known is None else domain.known.clone()
    by_content: dict[str, LabelRow] = {}
    line_of: dict[str, int] = {}
    for row in rows:
        content = row.content if row.content in rows_of else content_of.get(row.path, "")
        before, name = by_content.get(content), row.path or row.content
        if not content:
            problems.append(f"line {row.line}: {name or 'no path'} is not among the images of {domain.name!r}")
        elif name in line_of:
            problems.append(f"line {row.line}: {name} is listed before, in line {line_of[name]}")
        elif before is not None and before.label != row.label:
            problems.append(
                f"line {row.line}: {name} is {row.label!r}, but the same image in line {before.line} is "
                f"{before.label!r}"
            )
        else:
            known[rows_of[content]] = numbers[row.label]
            by_content[content] = row
        line_of.setdefault(name, row.line)
    return replace(domain, known=known)


def with_known(about: DomainRecord, domain: UnlabeledDomain | None) -> DomainRecord:
    """With the number of added labels and their digest, if there are any: a resumed run must have the same."""
    if domain is None or domain.known is None:
        return about
    digest = hashlib.sha256(domain.known.numpy().tobytes()).hexdigest()[:16]
    return {**about, "known": int((domain.known >= 0).sum()), "known_hash": digest}
