"""What Python users pass to `fit`: sites in any of the forms of `forms`, in any mixture, as one catalog."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from proud.config import NOTHING
from proud.data.added import POOL
from proud.data.arrays import as_numpy, label_names
from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain
from proud.data.folder import refuse_splits, scan_domain, taken_for_splits
from proud.data.forms import FORMS, Given, is_hub_dataset, is_paths, is_table, read_form
from proud.data.types import LabeledDomain, UnlabeledDomain
from proud.data.walk import IMAGE_SUFFIXES
from proud.errors import UserError
from proud.text import nfc, some


class Inputs(NamedTuple):
    """The images, the names of the domains by role, as in `TaskSpec`, and the labels as they were given."""

    catalog: Catalog
    labeled: str
    unlabeled: tuple[str, ...]
    test: str
    names: dict[str, Any]
    """class name → label as it was given, numbers as numbers"""


class Site(NamedTuple):
    """One unlabeled site, as it was given."""

    number: int
    images: Any
    name: str = ""


@dataclass
class Sites:
    """Makes domains of what is given."""

    follow_links: bool = False
    folders: dict[str, Path] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    # ---- labeled

    def labeled(self, default_name: str, given: Any) -> DomainFiles:
        name, given = named(default_name, given)
        if isinstance(given, LabeledDomain):
            known = [given.classes[number] if number >= 0 else None for number in given.labels.tolist()]
            return array_domain(given.name, read_form(given.name, given.images).pixels, known)  # type: ignore[arg-type]
        found, labels = self._images_and_labels(name, given)
        if found.folder is not None:
            return self.folder(found.folder, "" if name == default_name else name)
        if len(labels) != len(found.sources()):
            raise UserError(f"The {name} data has {len(found.sources())} images but {len(labels)} labels")
        return domain_of(name, found, list(labels))

    def _images_and_labels(self, name: str, given: Any) -> tuple[Given, list[str]]:
        pair = isinstance(given, tuple) and len(given) == 2 and not is_paths(given)
        found = read_form(name, given[0] if pair else given)
        if found.folder is not None and not pair:
            return found, []
        if found.domains is not None and len(set(found.domains)) > 1:
            raise UserError(
                f"The table of {name} has several domains: {some(dict.fromkeys(found.domains))}. Pass the rows of one, "
                "and the others as `unlabeled` or `test`."
            )
        values = as_numpy(given[1]) if pair else np.array(found.labels or (), dtype=None)
        if found.folder is not None or not (pair or found.labels):
            raise UserError(
                f"{name} must have labels: a folder of class folders, a pair (images, labels), a LabeledDomain, a "
                f"table with a column `label`, or a dataset with labels. Images may be {FORMS}."
            )
        if not pair and None in (found.labels or ()):
            raise UserError(f"{(found.labels or ()).count(None)} rows of the table of {name} have no label.")
        labels = label_names(name, values)
        self.names |= {nfc(label): value for label, value in zip(labels, values, strict=True)}
        return found, labels

    # ---- unlabeled

    def unlabeled(self, site: Site) -> list[DomainFiles]:
        """One site, or those that a table names."""
        given, name = site.images, site.name or f"unlabeled {site.number}"
        if isinstance(given, LabeledDomain):
            return [self.labeled(given.name, given)]
        if isinstance(given, UnlabeledDomain):
            return [ready_domain(given)]
        if isinstance(given, tuple) and not is_paths(given):
            raise UserError(f"The unlabeled domain {site.number} is a pair: pass its images only, labels are not used")
        found = read_form(name, given)
        if found.folder is not None:
            return [self.folder(found.folder, site.name)]
        if found.domains is None:
            return [domain_of(name, found)]
        by_name: dict[str, list[int]] = {}
        for row, name in enumerate(found.domains):
            by_name.setdefault(name, []).append(row)
        return [domain_of(name, part_of(found, rows)) for name, rows in by_name.items()]

    # ---- folders

    def folder(self, where: Path, name: str = "") -> DomainFiles:
        """A domain under its folder's name, made different from the names before it."""
        folder = where.absolute()
        if folder.resolve() in self.folders.values():
            raise UserError(f"The folder {where} is given twice: every domain needs a folder of its own.")
        wanted = nfc(name or folder.name)
        name, number = wanted, 2
        while name in self.folders:
            name, number = f"{wanted} ({number})", number + 1
        self.folders[name] = folder.resolve()
        domain, warning = scan_domain(name, folder, self.follow_links)
        if warning:
            warnings.warn(warning, stacklevel=5)
        return domain


def catalog_of(labeled: Any, unlabeled: Any, test: Any = None, pool: Any = None, follow_links: bool = False) -> Inputs:
    """Class names are strings (`7` becomes "7"). The labels of a `LabeledDomain` among the unlabeled ones go to its
    audit; an `UnlabeledDomain` keeps its order, ids and known labels. A pool is the domain `POOL` of the catalog."""
    sites = Sites(follow_links)
    source = sites.labeled("labeled", labeled)
    names = dict(sites.names)
    others = [domain for site in each_site(unlabeled) for domain in sites.unlabeled(site)]
    target = None if test is None else sites.labeled("test", test)
    if target is not None and target.name == NOTHING:  # the word for no test domain
        target = replace(target, name=f"{NOTHING} (test)")
    unknown = [] if pool is None else [renamed(domain, POOL) for domain in sites.unlabeled(Site(len(others) + 1, pool))]
    every = [source, *others, *unknown, *([target] if target else [])]
    domains = [domain.name for domain in every]
    if len(set(domains)) < len(domains):
        raise UserError(f"Two domains have the same name: {', '.join(sorted(domains))}. Names must differ")
    for domain in (source, target):
        if domain is not None:
            refuse_splits(domain)
    for domain in (*others, *unknown):
        if domain.splits:
            warnings.warn(taken_for_splits(domain), stacklevel=3)
    catalog = Catalog("python", None, {domain.name: domain for domain in every})
    hidden = tuple(domain.name for domain in others)
    return Inputs(catalog, source.name, hidden, target.name if target else NOTHING, names)


def with_labels(labeled: Any, y: Any) -> Any:
    """The pair (images, labels), if the labels come apart from the images."""
    if y is None:
        return labeled
    if isinstance(labeled, str | Path | tuple | Mapping | LabeledDomain) and not is_paths(labeled):
        raise UserError("y goes with images that have no labels; the other domains are fit(..., unlabeled=[...]).")
    return labeled, y


def renamed(domain: DomainFiles, name: str) -> DomainFiles:
    return replace(domain, name=name, ready=None if domain.ready is None else replace(domain.ready, name=name))


def named(default_name: str, given: Any) -> tuple[str, Any]:
    """A dict of one item names its site."""
    if not isinstance(given, Mapping) or is_hub_dataset(given):
        return default_name, given
    if len(given) != 1:
        raise UserError(f"{default_name} must be one site, as in {{'central': images}}; it has {len(given)}.")
    ((name, item),) = given.items()
    return str(name), item


def each_site(unlabeled: Any) -> list[Site]:
    """Of a dict of named sites, of a list of sites, or of a single one."""
    if isinstance(unlabeled, Mapping) and not is_hub_dataset(unlabeled):
        return [Site(number, item, str(name)) for number, (name, item) in enumerate(unlabeled.items(), start=1)]
    single = isinstance(unlabeled, str | Path | np.ndarray | Tensor | UnlabeledDomain | LabeledDomain | Dataset)
    single = single or is_table(unlabeled) or is_hub_dataset(unlabeled) or is_image_files(unlabeled)
    return [Site(number, item) for number, item in enumerate([unlabeled] if single else unlabeled or (), start=1)]


def is_image_files(given: Any) -> bool:
    """Image files are one site; folders and tables are one site each."""
    return is_paths(given) and all(Path(path).suffix.lower() in IMAGE_SUFFIXES for path in given)


def domain_of(name: str, found: Given, labels: Sequence[str | None] | None = None) -> DomainFiles:
    """A domain of files or pixels."""
    if found.pixels is not None:
        return array_domain(name, found.pixels, labels or [None] * len(found.pixels))
    places = [str(file.absolute()) for file in found.files]
    if len(set(places)) < len(places):
        twice = next(place for place, count in Counter(places).items() if count > 1)
        raise UserError(f"{twice} is given twice in {name!r}.")
    stated, groups = labels or [None] * len(places), found.groups or [""] * len(places)
    splits = checked_splits(name, found.splits or [None] * len(places))
    entries = [
        Entry(place, label and nfc(label), split, group)
        for place, label, split, group in zip(places, stated, splits, groups, strict=True)
    ]
    return DomainFiles(nfc(name), tuple(sorted(entries, key=lambda entry: entry.location)))


def part_of(found: Given, rows: list[int]) -> Given:
    """The files of these rows of a table, with their groups and splits."""
    groups = found.groups and tuple(found.groups[row] for row in rows)
    splits = found.splits and tuple(found.splits[row] for row in rows)
    return Given(files=tuple(found.files[row] for row in rows), groups=groups, splits=splits)


def checked_splits(name: str, splits: Sequence[str | None]) -> Sequence[str | None]:
    if strange := sorted({split for split in splits if split not in (None, "train", "val")}):
        raise UserError(f"The column split of {name} has {some(strange)}; it may only have train and val.")
    if len({split is None for split in splits}) > 1:
        raise UserError(f"Some rows of {name} state a split and some do not.")
    return splits


def ready_domain(given: UnlabeledDomain) -> DomainFiles:
    if not len(given):
        raise UserError(f"The domain {given.name!r} has no images")
    name = nfc(given.name)
    entries = tuple(Entry(str(row), None) for row in range(len(given)))
    ready = given if given.name == name else replace(given, name=name)
    return DomainFiles(name, entries, ready=ready)


def images_and_labels(given: Any, follow_links: bool = False) -> tuple[Any, list[str]]:
    """Of a labeled domain in any form: its files or pixels, and the label of each."""
    domain = Sites(follow_links).labeled("images", given)
    refuse_splits(domain)
    if without := domain.unlabeled_entries:
        raise UserError(f"{len(without)} of {len(domain.entries)} images have no label: {some(without)}.")
    labels = [str(entry.label) for entry in domain.entries]
    return (list(domain.pixels) if domain.pixels is not None else [entry.location for entry in domain.entries]), labels
