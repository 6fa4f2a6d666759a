"""What a saved model says about many images, as arrays: one row per image, addressed by its number. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

NEAREST = 3
"""prototypes named per image, and labeled images shown per prototype"""
COLUMNS: dict[str, tuple[str, int]] = {
    "site": ("i4", 0),  # place in `Atlas.sites`
    "guess": ("i4", 0),  # the classifier's class, as `proud predict` gives it
    "confidence": ("f4", 0),
    "abstain": ("?", 0),
    "doubt": ("f4", 0),  # the uncertainty that `proud label-next` goes by
    "prototype": ("i4", 0),  # class of the nearest prototype
    "disagreement": ("f4", 0),  # total variation between classifier and prototypes, in [0, 1]
    "distance": ("f4", 0),  # cosine distance to the prototype of the guessed class, of labeled images of their own
    "suggested": ("i4", 0),  # place among the picks of `proud label-next`; -1: not picked
    "near": ("i4", NEAREST),  # classes of the nearest prototypes; -1: none
    "near_distance": ("f4", NEAREST),
    "truth": ("i4", 0),  # class of a labeled image; -1 elsewhere
    "row": ("i8", 0),  # in the feature store
}
"""column → type and width; width 0 is a plain column"""


@dataclass(frozen=True)
class AtlasSite:
    """One site's images: rows `start` to `stop` of the atlas."""

    name: str
    start: int
    stop: int
    labeled: bool = False
    verdict: str = ""
    text: str = ""
    """the verdict in a sentence"""
    in_run: bool = True
    """it is an unlabeled site of the run, so that the run's command can train with its labels"""


@dataclass(frozen=True, eq=False)
class Atlas:
    """The sites, then the labeled images if there are any."""

    classes: tuple[str, ...]
    sites: tuple[AtlasSite, ...]
    sources: Sequence[Path | np.ndarray]
    locations: Sequence[str]
    """as in the column `path` of a table of labels"""
    contents: Sequence[str]
    columns: dict[str, np.ndarray]
    exemplars: Sequence[Sequence[int]]
    """class → the labeled images nearest to its prototype"""
    store: Path
    width: int
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Images of the sites: those that can be labeled."""
        return sum(site.stop - site.start for site in self.sites if not site.labeled)

    @property
    def labeled_rows(self) -> range:
        return next((range(site.start, site.stop) for site in self.sites if site.labeled), range(0))


def empty_columns(count: int) -> dict[str, np.ndarray]:
    """Zeros; -1 where that means none."""
    columns = {name: np.zeros((count, width) if width else count, kind) for name, (kind, width) in COLUMNS.items()}
    for name in ("suggested", "near", "truth"):
        columns[name][:] = -1
    return columns
