"""A task's images, found and not yet read. Imports no torch, so that the command line can look before it parses."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from proud.config import TaskSpec
from proud.data.added import with_added
from proud.data.benchmarks import open_catalog
from proud.data.catalog import Catalog
from proud.data.csv_table import LabelRow, read_labels
from proud.data.roles import Roles, assign_roles
from proud.data.shapes import native_side


@dataclass(frozen=True, eq=False)
class TaskSource:
    """Made once per run, and handed on whole."""

    spec: TaskSpec
    catalog: Catalog
    roles: Roles
    labels: tuple[LabelRow, ...] = ()

    @property
    def native_side(self) -> int:
        """The median shorter side of the labeled domain's images."""
        return native_side(self.catalog, self.roles.labeled)


def find_task(spec: TaskSpec, catalog: Catalog | None = None) -> TaskSource:
    """Find the images and check the roles of the domains. `catalog`: if the images were found before."""
    labels = read_labels(spec.labels) if spec.labels else []
    with without_gc():
        catalog, added = with_added(catalog or open_catalog(spec.data, spec.root, spec.follow_links), spec)
    return TaskSource(spec, catalog, assign_roles(catalog, spec, added), tuple(labels))


@contextmanager
def without_gc() -> Iterator[None]:
    """Making a million small objects triggers the garbage collector over and over."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
