"""What Python users pass to `fit`: folders, arrays or domain types, in any mixture, as one catalog."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from proud.config import NOTHING
from proud.data.added import POOL
from proud.data.arrays import as_numpy, channels_last, label_names
from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain
from proud.data.folder import refuse_splits, scan_domain, taken_for_splits
from proud.data.types import LabeledDomain, UnlabeledDomain
from proud.errors import UserError
from proud.text import nfc


class Inputs(NamedTuple):
    """The images, and the names of the domains by role, as in `TaskSpec`."""

    catalog: Catalog
    labeled: str
    unlabeled: tuple[str, ...]
    test: str


def catalog_of(labeled: Any, unlabeled: Any, test: Any = None, pool: Any = None) -> Inputs:
    """Class names are strings (`7` becomes "7"). The labels of a `LabeledDomain` among the unlabeled ones go to its
    audit; an `UnlabeledDomain` keeps its order, ids and known labels. A pool is the domain `POOL` of the catalog."""
    folders: dict[str, Path] = {}
    source = labeled_domain("labeled", labeled, folders)
    others = [unlabeled_domain(number, item, folders) for number, item in enumerate(as_list(unlabeled), start=1)]
    target = None if test is None else labeled_domain("test", test, folders)
    if target is not None and target.name == NOTHING:  # the word for no test domain
        target = replace(target, name=f"{NOTHING} (test)")
    unknown = [] if pool is None else [renamed(unlabeled_domain(len(others) + 1, pool, folders), POOL)]
    every = [source, *others, *unknown, *([target] if target else [])]
    names = [domain.name for domain in every]
    if len(set(names)) < len(names):
        raise UserError(f"Two domains have the same name: {', '.join(sorted(names))}. Names must differ")
    for domain in (source, target):
        if domain is not None:
            refuse_splits(domain)
    for domain in (*others, *unknown):
        if domain.splits:
            warnings.warn(taken_for_splits(domain), stacklevel=3)
    catalog = Catalog("python", None, {domain.name: domain for domain in every})
    return Inputs(catalog, source.name, tuple(domain.name for domain in others), target.name if target else NOTHING)


def renamed(domain: DomainFiles, name: str) -> DomainFiles:
    return replace(domain, name=name, ready=None if domain.ready is None else replace(domain.ready, name=name))


def is_path(given: Any) -> bool:
    return isinstance(given, str | Path)


def as_list(unlabeled: Any) -> list[Any]:
    """A single domain counts as a list of one."""
    single = is_path(unlabeled) or isinstance(unlabeled, np.ndarray | Tensor | UnlabeledDomain | LabeledDomain)
    return [unlabeled] if single else list(unlabeled or ())


def given_names(labeled: Any) -> dict[str, Any]:
    """Class name → label as it was given, numbers as numbers."""
    values = as_numpy(labeled[1] if isinstance(labeled, tuple) and len(labeled) == 2 else ())
    return {nfc(str(label)): value for label, value in zip(values.tolist(), values, strict=True)}


def labeled_domain(default_name: str, given: Any, folders: dict[str, Path]) -> DomainFiles:
    if is_path(given):
        return folder_domain(given, folders)
    if isinstance(given, LabeledDomain):
        names: list[str | None] = [given.classes[number] if number >= 0 else None for number in given.labels.tolist()]
        return array_domain(given.name, channels_last(given.name, given.images), names)
    if not isinstance(given, tuple) or len(given) != 2:
        raise UserError(
            f"{default_name} must be a folder of class folders, a pair (images, labels), or a LabeledDomain."
        )
    images = channels_last(default_name, given[0])
    labels = label_names(default_name, given[1])
    if len(labels) != len(images):
        raise UserError(f"The {default_name} data has {len(images)} images but {len(labels)} labels")
    return array_domain(default_name, images, labels)


def unlabeled_domain(number: int, given: Any, folders: dict[str, Path]) -> DomainFiles:
    if is_path(given):
        return folder_domain(given, folders)
    if isinstance(given, LabeledDomain):
        return labeled_domain(given.name, given, folders)
    if isinstance(given, UnlabeledDomain):
        if not len(given):
            raise UserError(f"The domain {given.name!r} has no images")
        name = nfc(given.name)
        entries = tuple(Entry(str(row), None) for row in range(len(given)))
        ready = given if given.name == name else replace(given, name=name)
        return DomainFiles(name, entries, ready=ready)
    if isinstance(given, tuple):
        raise UserError(f"The unlabeled domain {number} is a pair: pass its images only, labels are not used")
    images = channels_last(f"unlabeled {number}", given)
    return array_domain(f"unlabeled {number}", images, [None] * len(images))


def folder_domain(where: str | Path, folders: dict[str, Path]) -> DomainFiles:
    """A domain under its folder's name, made different from the names before it."""
    folder = Path(where).absolute()
    if not folder.is_dir():
        raise UserError(f"There is no folder {where}.")
    if folder.resolve() in folders.values():
        raise UserError(f"The folder {where} is given twice: every domain needs a folder of its own.")
    name, number = nfc(folder.name), 2
    while name in folders:
        name, number = f"{nfc(folder.name)} ({number})", number + 1
    folders[name] = folder.resolve()
    domain, warning = scan_domain(name, folder)
    if warning:
        warnings.warn(warning, stacklevel=4)
    return domain
