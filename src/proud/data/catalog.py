"""Where the images are, before any is decoded."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proud.errors import UserError
from proud.text import nfc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from proud.data.types import UnlabeledDomain


class Entry(NamedTuple):
    """One image: its path below the root (or its row in an array), its class if stated, the split it ships with, and
    what it shares with others (a patient, a slide): images of one group stay on one side of a split."""

    location: str
    label: str | None
    split: str | None = None
    group: str = ""


@dataclass(frozen=True, eq=False)
class DomainFiles:
    """The images of one domain: files, or `pixels` [N,H,W,C] in memory, or a domain that is `ready` for training."""

    name: str
    entries: tuple[Entry, ...]
    empty_classes: tuple[str, ...] = ()
    pixels: np.ndarray | list[np.ndarray] | None = None
    splits: tuple[str, ...] = ()
    """folders named after splits in place of class folders: the images have no labels"""
    ready: UnlabeledDomain | None = None

    def __post_init__(self) -> None:
        """Names of domains and classes go into many files, so they must be text. File names may be any bytes."""
        for name in {self.name, *(entry.label or "" for entry in self.entries)}:
            if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise UserError(
                    f"The folder name {name!r} is not valid UTF-8, but it names a domain or a class: rename it."
                )

    @property
    def ships_split(self) -> bool:
        return any(entry.split for entry in self.entries)

    @property
    def in_memory(self) -> bool:
        return self.pixels is not None or self.ready is not None

    @property
    def unlabeled_entries(self) -> list[str]:
        """The images without a label."""
        return [entry.location for entry in self.entries if entry.label is None]


@dataclass(frozen=True, eq=False)
class Catalog:
    """All domains below one root.

    `held_out`: the share that is not trained on by this data set's convention, although it ships no split.
    """

    name: str
    root: Path | None
    domains: dict[str, DomainFiles]
    held_out: float | None = None
    benchmark: bool = False
    """a public benchmark in its own layout, not merely a folder of that name"""
    ignored_links: tuple[str, ...] = ()
    notices: dict[str, str] = field(default_factory=dict)
    """domain → a warning about its folder; a link in place of a domain is a domain without images"""
    warned: set[tuple[str, ...]] = field(default_factory=set)
    sizes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    """domain → sizes of some of its images, see `shapes`"""

    def warn_once(self, text: str, *key: str) -> None:
        """Warn, unless the text is empty or this was warned about before: many tasks may share a catalog."""
        if text and key not in self.warned:
            self.warned.add(key)
            warnings.warn(text, stacklevel=3)

    def source(self, domain: DomainFiles, entry: Entry) -> Path | np.ndarray:
        """Where to read one image from."""
        if domain.pixels is not None:
            return domain.pixels[int(entry.location)]
        return (self.root or Path()) / entry.location

    def sources(self, domain: DomainFiles) -> list[Path | np.ndarray]:
        return [self.source(domain, entry) for entry in domain.entries]

    @property
    def where(self) -> str:
        return self.name if self.root is None else str(self.root)


def array_domain(name: str, images: np.ndarray | list[np.ndarray], labels: Sequence[str | None]) -> DomainFiles:
    """A domain in memory: pixels [N,H,W,1 or 3] uint8, or a list of images of any size."""
    entries = tuple(Entry(str(row), label and nfc(label)) for row, label in enumerate(labels))
    return DomainFiles(nfc(name), entries, pixels=images)
