"""What Python users hand to `fit`: folders, arrays or domain types, in any mixture, made into one task."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proud.config import Square, choose_model
from proud.data.arrays import assemble_arrays
from proud.data.task import assemble
from proud.data.catalog import (
    Catalog,
    DomainFiles,
    Entry,
    found_instead,
    leaving_links,
    not_read,
    refuse_splits,
    some,
    split_folders,
    taken_for_splits,
)
from proud.data.types import UNKNOWN, LabeledDomain, Task, UnlabeledDomain
from proud.data.native import LOOKED_AT, median_side, native_side
from proud.data.roles import sort_classes
from proud.data.decode import decode_all, stored_side
from proud.data.walk import Walk
from proud.errors import UserError
from proud.nets.models import model_spec
from proud.text import nfc


def gather(
    labeled: Any,
    unlabeled: Any,
    test: Any = None,
    *,
    model: str = "auto",
    size: int | None = None,
    square: Square = "middle",
    val: float = 0.1,
    seed: int = 2022,
    skip_bad: bool = False,
    progress: bool = False,
) -> tuple[Task, str]:
    """One task from whatever was given, and the name of the network that suits its images."""
    taken: dict[str, Path] = {}
    source = _folder(labeled, taken) if is_path(labeled) else labeled
    others = [_folder(item, taken) if is_path(item) else item for item in as_list(unlabeled)]
    target = _folder(test, taken) if is_path(test) else test
    if not others:
        raise UserError("No unlabeled domain is given: fit(labeled=..., unlabeled=[...]) needs at least one.")
    for domain in (source, target):
        if isinstance(domain, DomainFiles):
            refuse_splits(domain)
    for domain in others:
        if isinstance(domain, DomainFiles) and domain.splits:
            warnings.warn(taken_for_splits(domain), stacklevel=3)
    name = choose_model(model, _native_side(source))
    side = model_spec(name, 2, size).size
    every = [source, *others] + ([] if target is None else [target])
    if all(isinstance(item, DomainFiles) for item in every):
        task = assemble(
            Catalog("folders", None, {domain.name: domain for domain in every}),
            labeled=source.name,
            unlabeled=[domain.name for domain in others],
            test=None if target is None else target.name,
            size=side,
            square=square,
            val=val,
            seed=seed,
            skip_bad=skip_bad,
            progress=progress,
        )
        tell_left_out([file["path"] for file in task.report["skipped"]])
        return task, name

    def read(item: Any) -> Any:
        return _decoded(item, stored_side(side), square, skip_bad, progress) if isinstance(item, DomainFiles) else item

    given = [read(item) for item in others]
    asked: dict[str, Any] = {"size": side, "square": square, "val": val, "seed": seed, "progress": progress}
    task = assemble_arrays(read(source), given, read(target), **asked)
    return task, name


def is_path(value: Any) -> bool:
    return isinstance(value, str | Path)


def as_list(unlabeled: Any) -> list[Any]:
    """A single domain counts as a list of one."""
    single = is_path(unlabeled) or isinstance(unlabeled, np.ndarray | Tensor | UnlabeledDomain | LabeledDomain)
    return [unlabeled] if single else list(unlabeled or ())


def _folder(where: str | Path, taken: dict[str, Path]) -> DomainFiles:
    """A domain under its folder's name, made different from the names before it."""
    folder = Path(where).absolute()
    if not folder.is_dir():
        raise UserError(f"There is no folder {where}.")
    if folder.resolve() in taken.values():
        raise UserError(f"The folder {where} is given twice: every domain needs a folder of its own.")
    name, number = nfc(folder.name), 2
    while name in taken:
        name, number = f"{nfc(folder.name)} ({number})", number + 1
    taken[name] = folder.resolve()
    return folder_domain(name, folder)


def folder_domain(name: str, folder: Path) -> DomainFiles:
    """All images below a folder; an image's label is the first folder below it, if there is one."""
    walk = Walk(folder)
    paths = sorted(walk.images(folder))
    above = [path.relative_to(folder).parts[:-1] for path in paths]
    splits = split_folders(above)
    labels = [None if splits or not names else nfc(names[0]) for names in above]
    links = leaving_links(walk)
    if not paths:
        raise UserError(f"There are no images in {folder}{found_instead(walk.others, links)}.")
    if text := not_read(name, len(paths), walk.others, links):
        warnings.warn(text, stacklevel=2)
    empty = {nfc(sub.name) for sub in walk.folders(folder)}.difference(labels, splits)
    return DomainFiles(name, tuple(map(Entry, map(str, paths), labels)), tuple(sorted(empty)), splits=splits)


def _native_side(source: Any) -> int:
    if isinstance(source, DomainFiles):
        return native_side(Catalog("folder", None, {source.name: source}), source.name)
    images = source[0] if isinstance(source, Sequence) and source else getattr(source, "images", source)
    if isinstance(source, tuple) and isinstance(images, list):
        return median_side(_sides(images[:: max(1, len(images) // LOOKED_AT)]))
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) not in (3, 4):
        raise UserError("labeled must be a folder of class folders, a pair (images, labels), or a LabeledDomain.")
    if len(shape) == 3:  # grey
        return min(shape[1:])
    return min(shape[1:3]) if shape[3] in (1, 3) else min(shape[2:])


def _sides(images: list[Any]) -> Iterator[int]:
    """The shorter sides of single images, without decoding; what is no image is told of later."""
    for image in images:
        shape = tuple(getattr(image, "shape", ()))
        if isinstance(image, Image.Image):
            yield min(image.size)
        elif len(shape) == 2 or shape[2:] in ((1,), (3,)):
            yield min(shape[:2])
        elif len(shape) == 3:
            yield min(shape[1:])


def _decoded(domain: DomainFiles, side: int, square: Square, skip_bad: bool, progress: bool) -> LabeledDomain:
    """Images in memory; those without a label get none. Among unlabeled domains, labels go to the audit alone."""
    sources = [Path(entry.location) for entry in domain.entries]
    images, kept, bad = decode_all(
        sources, side, square=square, skip_bad=skip_bad, progress=progress, description=f"Decoding {domain.name}"
    )
    tell_left_out([file.path for file in bad])
    classes = sort_classes({entry.label for entry in domain.entries if entry.label is not None})
    number = {label: k for k, label in enumerate(classes)}
    labels = [number.get(domain.entries[row].label or "", UNKNOWN) for row in kept]
    return LabeledDomain(domain.name, images, torch.tensor(labels, dtype=torch.int64), classes)


def tell_left_out(paths: Sequence[str]) -> None:
    if paths:
        images = "1 unreadable image is" if len(paths) == 1 else f"{len(paths)} unreadable images are"
        warnings.warn(f"{images} left out: {some(paths)}", stacklevel=2)
