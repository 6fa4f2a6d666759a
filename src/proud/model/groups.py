"""Which images a survey looks at: the run's own unlabeled sites or folders of new images, and the labeled images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proud.config import ReadSpec
from proud.data.added import POOL
from proud.data.catalog import Catalog, DomainFiles
from proud.data.checks import ImageRow
from proud.data.decode import hash_all
from proud.data.source import TaskSource
from proud.data.splits import split_unlabeled
from proud.errors import UserError
from proud.model.format import read_found_sites, run_folder
from proud.model.label_next import run_source
from proud.model.predict import Model, find_images
from proud.text import nfc


class Group(NamedTuple):
    """Images of one site, in the order in which they are found."""

    name: str
    sources: list[Path | np.ndarray]
    locations: list[str]
    contents: list[str]
    truth: list[int]
    """class numbers of labeled images; empty for a site"""
    in_run: bool = True


def find_groups(
    model: Model, folder: Path, folders: Sequence[Path], data: str, root: str, progress: bool
) -> list[Group]:
    """The sites, then the labeled images. With folders, a run whose own images are gone has no labeled ones."""
    try:
        source = run_source(model, folder, data, root, ReadSpec(skip_bad=True))
    except UserError as error:
        if not folders or data:
            raise
        warnings.warn(f"Labeled images that look alike are not shown. {error}", stacklevel=2)
        source = None
    if folders:
        trained = {domain.name for domain in source.roles.unlabeled} if source else set()
        sites = [folder_group(path, trained, progress) for path in different_names(folders)]
    else:
        assert source is not None
        sites = [unlabeled_group(source, domain, progress) for domain in source.roles.unlabeled]
        if source.spec.unlabeled_pool:
            sites = [part for group in sites for part in (found_in(group, folder) if group.name == POOL else [group])]
    return sites + ([labeled_group(source, model.classes, progress)] if source else [])


def different_names(folders: Sequence[Path]) -> list[Path]:
    names = [site_name(path) for path in folders]
    if len(set(names)) < len(names):
        raise UserError(f"Two folders have the same name, which becomes the name of the site: {', '.join(names)}.")
    return list(folders)


def site_name(folder: Path) -> str:
    return nfc(Path(os.path.realpath(folder)).name)


def folder_group(folder: Path, trained: set[str], progress: bool) -> Group:
    """All images below a folder. Their paths are those that they have in a data folder above this one."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    files, name = find_images(folder), site_name(folder)
    locations = [f"{name}/{path.relative_to(folder).as_posix()}" for path in files]
    return Group(name, list(files), locations, contents_of(list(files), name, progress), [], name in trained)


def unlabeled_group(source: TaskSource, domain: DomainFiles, progress: bool) -> Group:
    """The images that training uses: labels of others would be refused."""
    rows = read_rows(source.catalog, domain, progress)
    rows = split_unlabeled(rows, source.catalog.held_out, ships_split=domain.ships_split)
    return Group(domain.name, *listed(source.catalog, domain, rows), [])


def found_in(pool: Group, folder: Path) -> list[Group]:
    """The sites that the run found in its pool; images that came later stay in the pool."""
    site_of = read_found_sites(run_folder(folder))
    if not site_of:
        warnings.warn("The pool is shown as one site: the run did not store which sites it found in it.", stacklevel=2)
    rows: dict[str, list[int]] = {name: [] for name in (*site_of.values(), pool.name)}
    for at, content in enumerate(pool.contents):
        rows[site_of.get(content, pool.name)].append(at)
    return [part_of(pool, here)._replace(name=name) for name, here in rows.items() if here]


def part_of(group: Group, rows: Sequence[int]) -> Group:
    return group._replace(
        sources=[group.sources[at] for at in rows],
        locations=[group.locations[at] for at in rows],
        contents=[group.contents[at] for at in rows],
        truth=[group.truth[at] for at in rows] if group.truth else [],
    )


def labeled_group(source: TaskSource, classes: Sequence[str], progress: bool) -> Group:
    rows = read_rows(source.catalog, source.roles.labeled, progress)
    numbers = {name: k for k, name in enumerate(classes)}
    truth = [numbers[row.entry.label or ""] for row in rows]
    return Group(source.roles.labeled.name, *listed(source.catalog, source.roles.labeled, rows), truth)


def read_rows(catalog: Catalog, domain: DomainFiles, progress: bool) -> list[ImageRow]:
    contents = contents_of(catalog.sources(domain), domain.name, progress)
    return [ImageRow(content, entry) for content, entry in zip(contents, domain.entries, strict=True)]


def contents_of(sources: Sequence[Path | np.ndarray], name: str, progress: bool) -> list[str]:
    return hash_all(list(sources), progress=progress, description=f"Reading {name}")


def listed(
    catalog: Catalog, domain: DomainFiles, rows: Sequence[ImageRow]
) -> tuple[list[Path | np.ndarray], list[str], list[str]]:
    """Sources, locations and contents."""
    sources = [catalog.source(domain, row.entry) for row in rows]
    return sources, [row.entry.location for row in rows], [row.content for row in rows]
