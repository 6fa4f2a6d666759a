"""Labels that a person added to unlabeled images: read from a table, joined to the images they belong to.

A row names an image by its content's hash or by its path. The labels become `UnlabeledDomain.known`; they never join
the labeled domain, and the paths stay behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from proud.data.catalog import SHOWN, _read_table, some
from proud.data.types import UNKNOWN, Audit, Task, UnlabeledDomain
from proud.errors import UserError
from proud.text import nfc
from proud.training.records import plain_cell


class Stated(NamedTuple):
    """One filled-in row of the table."""

    line: int
    path: str
    domain: str
    label: str
    content: str
    guess: str = ""
    uncertainty: str = ""


def read_labels(path: Path | str) -> list[Stated]:
    """The rows whose label is filled in. Columns: path, domain, label, and those that `proud label-next` adds."""
    table = Path(path)
    found = []
    for line, row in _read_table(table):
        cells = {name: plain_cell(value) for name, value in row.items()}
        cells |= {name: nfc(cells[name]) for name in ("domain", "label")}
        if cells["label"]:
            found.append(Stated(line, **{name: cells.get(name, "") for name in Stated._fields[1:]}))
    if not found:
        raise UserError(f"No label is filled in in {table}: write class names into its column label")
    return found


def state_labels(task: Task, stated: Sequence[Stated], table: Path | str) -> Task:
    """The task with these labels among its unlabeled images. All that is wrong with the table is told at once."""
    problems: list[str] = []
    sites = {domain.name: domain for domain in task.training.unlabeled}
    numbers = {label: k for k, label in enumerate(task.training.classes)}
    by_domain: dict[str, list[Stated]] = {}
    for row in stated:
        if row.domain not in sites:
            role = task.report["domains"].get(row.domain, {}).get("role")
            what = f"is the {role} domain" if role else "is not in this run"
            problems.append(f"line {row.line}: {row.domain!r} {what}; unlabeled ones are: {some(sites)}")
        elif row.label not in numbers:
            known = some(task.training.classes)
            problems.append(f"line {row.line}: the class {row.label!r} is unknown; the labeled domain has: {known}")
        else:
            by_domain.setdefault(row.domain, []).append(row)
    labeled = {
        name: _join(sites[name], task.evaluation.audits[name], rows, numbers, problems)
        for name, rows in by_domain.items()
    }
    if problems:
        more = [f"  … and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise UserError("\n".join([f"{count} in {table}:", *(f"  {text}" for text in problems[:SHOWN]), *more]))
    unlabeled = tuple(labeled.get(domain.name, domain) for domain in task.training.unlabeled)
    return replace(task, training=replace(task.training, unlabeled=unlabeled), report=with_known(task.report, labeled))


def _join(
    domain: UnlabeledDomain, audit: Audit, stated: list[Stated], numbers: dict[str, int], problems: list[str]
) -> UnlabeledDomain:
    """Rows with the same content are the same image: one label is enough, and two must agree."""
    rows_of: dict[str, list[int]] = {}
    for place, image in enumerate(domain.ids):
        rows_of.setdefault(image, []).append(place)
    content_of = dict(zip(audit.paths, domain.ids, strict=True))
    known = torch.full((len(domain),), UNKNOWN) if domain.known is None else domain.known.clone()
    told: dict[str, Stated] = {}  # by content
    listed: dict[str, int] = {}  # image -> line
    for row in stated:
        content = row.content if row.content in rows_of else content_of.get(row.path, "")
        before, name = told.get(content), row.path or row.content
        if not content:
            problems.append(f"line {row.line}: {name or 'no path'} is not among the images of {domain.name!r}")
        elif name in listed:
            problems.append(f"line {row.line}: {name} is listed before, in line {listed[name]}")
        elif before is not None and before.label != row.label:
            problems.append(
                f"line {row.line}: {name} is {row.label!r}, but the same image in line {before.line} is "
                f"{before.label!r}"
            )
        else:
            known[rows_of[content]] = numbers[row.label]
            told[content] = row
        listed.setdefault(name, row.line)
    return replace(domain, known=known)


def with_known(report: dict[str, Any], labeled: dict[str, UnlabeledDomain]) -> dict[str, Any]:
    """Beside each domain, how many labels were stated and which: a resumed run must have the same."""
    domains = dict(report["domains"])
    for name, domain in labeled.items():
        assert domain.known is not None
        digest = hashlib.sha256(domain.known.numpy().tobytes()).hexdigest()[:16]
        domains[name] = domains[name] | {"known": int((domain.known >= 0).sum()), "known_hash": digest}
    return report | {"domains": domains}
