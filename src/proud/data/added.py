"""Unlabeled sites beside those of the data: folders of their own, and a pool of images of unknown origin."""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from proud.config import TaskSpec
from proud.data.catalog import Catalog, DomainFiles
from proud.data.folder import scan_domain
from proud.errors import UserError
from proud.text import nfc

POOL = "pool"
"""the name of the pool until its images are grouped into sites"""


def with_added(catalog: Catalog, spec: TaskSpec) -> tuple[Catalog, tuple[str, ...]]:
    """The catalog with the sites of --add and the pool, and the names of these sites."""
    if not spec.add and not spec.unlabeled_pool:
        return catalog, ()
    domains, notices = dict(catalog.domains), dict(catalog.notices)
    names: list[str] = []
    places: dict[str, str] = {}
    for site in spec.add:
        name = _domain_of(catalog, site)
        if (
            name is not None
            and name not in (spec.labeled, spec.test)
            and (not spec.unlabeled or name in spec.unlabeled)
        ):
            catalog.warn_once(
                f"--add {site}: the run has this unlabeled site already, so it changes nothing.", "added", name
            )
        elif name is None and (name := places.get(os.path.realpath(site))) is None:
            name = places[os.path.realpath(site)] = unused_name(nfc(Path(site).absolute().name), domains)
            domains[name], notice = _read(name, site, "--add", spec.follow_links)
            notices |= {name: notice} if notice else {}
        names.append(name)
    if spec.unlabeled_pool:
        if POOL not in domains:
            domains[POOL], notice = _read(POOL, spec.unlabeled_pool, "--unlabeled-pool", spec.follow_links)
            notices |= {POOL: notice} if notice else {}
        elif catalog.root is not None:
            raise UserError(f"The data has a domain {POOL!r}, which is the name of the images of --unlabeled-pool.")
        names.append(POOL)
    return replace(catalog, domains=domains, notices=notices), tuple(dict.fromkeys(names))


def unused_name(name: str, taken: Container[str]) -> str:
    number, found = 2, name
    while found in taken:
        found, number = f"{name} ({number})", number + 1
    return found


def _domain_of(catalog: Catalog, site: str) -> str | None:
    """The domain of this name or in this folder, if the data has one."""
    if nfc(site) in catalog.domains:
        return nfc(site)
    inside, root = os.path.realpath(site), catalog.root
    return next((name for name in catalog.domains if root and os.path.realpath(root / name) == inside), None)


def _read(name: str, folder: str, option: str, follow_links: bool) -> tuple[DomainFiles, str]:
    place = Path(folder).absolute()
    if not place.is_dir():
        either = "no such folder, and no domain of that name" if option == "--add" else "no such folder"
        raise UserError(f"{option} {folder}: {either}.")
    return scan_domain(name, place, follow_links)
