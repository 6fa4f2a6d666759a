"""The forms in which Python hands over images: folders, files, tables, arrays, PIL images, datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from proud.data.arrays import as_numpy, channels_last
from proud.data.csv_table import read_table
from proud.errors import UserError

FORMS = (
    "a folder; a list of image files; a CSV file or DataFrame with a column `path`; a uint8 array; a list of arrays or "
    "PIL images; a torch Dataset; a Hugging Face dataset"
)


@dataclass(frozen=True)
class Given:
    """Images in one form: a folder, files, or pixels; with labels and names of domains, if the form has them."""

    folder: Path | None = None
    files: tuple[Path, ...] = ()
    pixels: np.ndarray | list[np.ndarray] | None = None
    labels: tuple[Any, ...] | None = None
    domains: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    """the patient, slide or the like of each image"""
    splits: tuple[str | None, ...] | None = None
    """`train` or `val`, if a table states it"""

    def sources(self) -> list[Any]:
        """Files, or the pixels of each image."""
        return list(self.files) if self.pixels is None else list(self.pixels)


def read_form(name: str, given: Any) -> Given:
    """`name`: what to call the images in errors."""
    if isinstance(given, str | Path):
        return _from_path(Path(given))
    if is_table(given):
        rows = [{str(key).strip().lower(): value for key, value in row.items()} for row in given.to_dict("records")]
        return _from_rows(name, rows, Path())
    if is_hub_dataset(given):
        return _from_hub(name, given)
    if isinstance(given, Dataset):
        return _from_dataset(name, given)
    if is_paths(given):
        return Given(files=existing(given))
    if isinstance(given, np.ndarray | Tensor | list | tuple):
        return Given(pixels=channels_last(name, given))  # type: ignore[arg-type]
    raise UserError(f"{name} is {type(given).__name__!r}; it must be one of: {FORMS}.")


def is_paths(given: Any) -> bool:
    """A list, or an array or column of a table, of paths."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "OU":
        given = given.tolist()
    if not isinstance(given, list | tuple) and hasattr(given, "to_list"):
        given = given.to_list()
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(path, str | Path) for path in given)


def is_table(given: Any) -> bool:
    """A DataFrame; a library that is not imported is not needed."""
    return hasattr(given, "columns") and hasattr(given, "to_dict")


def is_hub_dataset(given: Any) -> bool:
    return type(given).__module__.split(".")[0] == "datasets"


def existing(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    found = tuple(Path(path) for path in paths)
    missing = [str(path) for path in found if not path.is_file()]
    if missing:
        raise UserError(f"{missing[0]}: no such file ({len(missing)} of {len(found)} are missing).")
    return found


# ---- each form


def _from_path(path: Path) -> Given:
    if path.is_dir():
        return Given(folder=path)
    if path.suffix.lower() == ".csv":
        return _from_rows(str(path), [row for _, row in read_table(path, needed=("path",))], path.parent)
    if not path.is_file():
        raise UserError(f"There is no folder {path}." if not path.suffix else f"{path}: no such file or folder.")
    return Given(files=(path,))


def _from_rows(name: str, rows: Sequence[dict[str, Any]], base: Path) -> Given:
    if not rows or "path" not in rows[0]:
        raise UserError(f"{name}: a table needs rows and a column `path` (and `label`, `domain` where they matter).")
    columns = ("label", "domain", "group", "split")
    labels, domains, groups, splits = ([_cell(row.get(column)) for row in rows] for column in columns)
    return Given(
        files=existing(base / str(row["path"]) for row in rows),
        labels=tuple(labels) if any(label is not None for label in labels) else None,
        domains=tuple(map(str, domains)) if any(domain is not None for domain in domains) else None,
        groups=tuple("" if group is None else str(group) for group in groups),
        splits=tuple(None if split is None else str(split) for split in splits),
    )


def _cell(value: Any) -> Any:
    """None for an empty cell, which a DataFrame has as NaN."""
    return None if value is None or value == "" or value != value else value


def _from_hub(name: str, given: Any) -> Given:
    features = getattr(given, "features", None)
    if isinstance(given, dict) or features is None:
        splits = f", such as {name}[{next(iter(given))!r}]" if isinstance(given, dict) and given else ""
        raise UserError(f"{name} is a Hugging Face dataset of several splits: pass one of them{splits}.")
    image = next((column for column, kind in features.items() if type(kind).__name__ == "Image"), None)
    if image is None:
        raise UserError(f"{name} has no column of images; its columns: {', '.join(features)}.")
    label = next((column for column in ("label", "labels") if column in features), None)
    label = label or next((column for column, kind in features.items() if type(kind).__name__ == "ClassLabel"), None)
    labels = None
    if label is not None:
        known = getattr(features[label], "names", None)
        labels = tuple(known[value] if known and value >= 0 else value for value in given[label])
    return Given(pixels=channels_last(name, [given[row][image] for row in range(len(given))]), labels=labels)


def _from_dataset(name: str, given: Any) -> Given:
    """Items are images, or pairs of an image and a label; numbers become the names in `classes`, if it has them."""
    if isinstance(given, IterableDataset) or not hasattr(given, "__len__"):
        raise UserError(f"{name} is a torch dataset without a length: pass one with __len__ and __getitem__.")
    items = [given[row] for row in range(len(given))]
    pairs = bool(items) and all(isinstance(item, tuple | list) and len(item) == 2 for item in items)
    images = [item[0] for item in items] if pairs else items
    if any(isinstance(image, Tensor) and image.is_floating_point() for image in images):
        raise UserError(
            f"{name} has images of floating-point numbers: leave out transforms such as ToTensor, Normalize."
        )
    labels = tuple(_plain(item[1]) for item in items) if pairs else None
    known = getattr(given, "classes", None)
    if labels is not None and known and all(isinstance(label, int) for label in labels):
        labels = tuple(known[label] for label in labels)
    return Given(pixels=channels_last(name, images), labels=labels)


def _plain(label: Any) -> Any:
    """Numbers of NumPy and torch as Python's."""
    found = as_numpy(label)
    return found.item() if found.ndim == 0 else label
