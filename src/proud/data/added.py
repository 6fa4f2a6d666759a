"""Unlabeled sites beside those of the data: folders of their own, and a pool of images of unknown origin."""

from __future__ import annotations

import os
from collections.abc import Collection, Container
from dataclasses import replace
from pathlib import Path

from proud.config import TaskSpec
from proud.data.catalog import Catalog, DomainFiles
from proud.data.folder import scan_domain
from proud.errors import UserError
from proud.text import nfc

POOL = "pool"
"""the name of the pool until its images are grouped into sites"""
SMALLEST_SITE = 16  # images of a site in a pool


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
        refuse_too_many_sites(spec.sites, len(domains[POOL].entries))
        for name in inside_pool(replace(catalog, domains=domains), spec, names):
            del domains[name]
        names.append(POOL)
    return replace(catalog, domains=domains, notices=notices), tuple(dict.fromkeys(names))


def refuse_too_many_sites(sites: str, images: int) -> None:
    if sites.isdecimal() and int(sites) > max(1, images // SMALLEST_SITE):
        raise UserError(f"--sites {sites}: {images} images are too few, with at least {SMALLEST_SITE} for each site.")


def inside_pool(catalog: Catalog, spec: TaskSpec, added: Collection[str]) -> list[str]:
    """Domains of the data that are left to the pool, because all their images are in it and nobody named them.

    Every image has one part to play: a pool with images of another domain that is used is refused."""
    files, found = files_of(catalog, POOL), []
    for name in catalog.domains:
        named = name in (spec.labeled, spec.test, *spec.unlabeled, *added)
        if name == POOL or (spec.unlabeled and not named):
            continue
        theirs = files_of(catalog, name)
        if not (shared := len(files & theirs)):
            continue
        if not named and shared == len(theirs):
            found.append(name)
            continue
        role = {spec.labeled: "labeled", spec.test: "test"}.get(name, "unlabeled")
        count = "1 image" if shared == 1 else f"{shared} images"
        raise UserError(
            f"The pool and the {role} domain {name!r} have {count} in common: use another folder as the pool"
            f"{', or other unlabeled domains' if role == 'unlabeled' else ''}."
        )
    return found


def files_of(catalog: Catalog, name: str) -> set[str]:
    """The paths of a domain's images, with all links to folders resolved; none of images in memory."""
    domain = catalog.domains[name]
    if domain.in_memory:
        return set()
    places = [os.path.split((catalog.root or Path()) / entry.location) for entry in domain.entries]
    folders = {folder: os.path.realpath(folder) for folder in {folder for folder, _ in places}}
    return {f"{folders[folder]}/{file}" for folder, file in places}


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
