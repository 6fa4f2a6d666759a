"""Tasks from arrays in memory, for the Python interface."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proud.config import Square
from proud.data.task import build_task, check_numbers, digest
from proud.data.catalog import Catalog, DomainFiles, array_domain
from proud.data.types import UNKNOWN, Audit, LabeledDomain, Task, UnlabeledDomain
from proud.data.labels import with_known
from proud.data.roles import assign_roles
from proud.data.decode import BadImage, decode_all, pixels_of, stored_side
from proud.errors import UserError

Images = np.ndarray | Tensor | list[Any]
"""uint8, [N,H,W,C] or [N,C,H,W], with 1 or 3 channels; or a list of such images and PIL's, of any sizes."""

Labels = Sequence[Any] | np.ndarray | Tensor
"""One whole number or one string for each image."""


def assemble_arrays(
    labeled: tuple[Images, Labels] | LabeledDomain,
    unlabeled: Sequence[Images | UnlabeledDomain | LabeledDomain],
    test: tuple[Images, Labels] | LabeledDomain | None = None,
    *,
    size: int,
    square: Square = "middle",
    val: float = 0.1,
    seed: int,
    progress: bool = False,
) -> Task:
    """The same task that folders give. Class names are strings (`7` becomes "7").

    The labels of a `LabeledDomain` among the unlabeled ones go to its audit; an `UnlabeledDomain` keeps its order, ids
    and known labels.
    """
    check_numbers(size, val)
    domains = [_labeled_domain("labeled", labeled)]
    ready: dict[str, UnlabeledDomain] = {}
    order: list[str] = []
    for number, item in enumerate(unlabeled, start=1):
        if isinstance(item, UnlabeledDomain):
            ready[item.name] = item
        elif isinstance(item, LabeledDomain):
            domains.append(_labeled_domain(item.name, item))
        elif isinstance(item, tuple):
            raise UserError(f"The unlabeled domain {number} is a pair: give its images alone, for labels are not used")
        else:
            images = channels_last(f"unlabeled {number}", item)
            domains.append(array_domain(f"unlabeled {number}", images, [None] * len(images)))
        order.append(item.name if isinstance(item, UnlabeledDomain) else domains[-1].name)
    if test is not None:
        domains.append(_labeled_domain("test", test))
    names = [domain.name for domain in domains] + list(ready)
    if len(set(names)) < len(order) + 1 + (test is not None):
        raise UserError(f"Two domains have the same name: {', '.join(sorted(names))}. Names must differ")
    catalog = Catalog("arrays", None, {domain.name: domain for domain in domains})
    roles = assign_roles(
        catalog,
        domains[0].name,
        [name for name in order if name not in ready],
        None if test is None else domains[-1].name,
        more_unlabeled=bool(ready),
    )
    task = build_task(catalog, roles, size=size, square=square, val=val, seed=seed, skip_bad=False, progress=progress)
    return _with_ready(task, ready, order, square) if ready else task


def _with_ready(task: Task, ready: dict[str, UnlabeledDomain], order: list[str], square: Square) -> Task:
    side = stored_side(task.size)
    fitted = {name: _at_side(domain, side, square) for name, domain in ready.items()}
    every = {domain.name: domain for domain in task.training.unlabeled} | fitted
    audits = dict(task.evaluation.audits)
    for name, domain in fitted.items():
        if domain.known is not None and int(domain.known.max()) >= len(task.training.classes):
            raise UserError(f"The known labels of {name!r} go beyond the {len(task.training.classes)} classes")
        audits[name] = Audit(name, torch.full((len(domain),), UNKNOWN), domain.ids)
        task.report["domains"][name] = {"role": "unlabeled", "images": len(domain), "audited": 0}
        task.report["content"][name] = digest(
            [*domain.ids, hashlib.sha256(domain.images.contiguous().numpy().data).hexdigest()]
        )
    stated = {name: domain for name, domain in fitted.items() if domain.known is not None}
    return replace(
        task,
        report=with_known(task.report, stated),
        training=replace(task.training, unlabeled=tuple(every[name] for name in order)),
        evaluation=replace(task.evaluation, audits=audits),
    )


def _at_side(domain: UnlabeledDomain, side: int, square: Square) -> UnlabeledDomain:
    if not len(domain):
        raise UserError(f"The domain {domain.name!r} has no images")
    if domain.images.shape[-1] == side:
        return domain
    images, _, _ = decode_all(list(channels_last(domain.name, domain.images)), side, square=square)
    return replace(domain, images=images)


def _labeled_domain(default_name: str, given: tuple[Images, Labels] | LabeledDomain) -> DomainFiles:
    if isinstance(given, LabeledDomain):
        names: list[str | None] = [given.classes[number] if number >= 0 else None for number in given.labels.tolist()]
        return array_domain(given.name, channels_last(given.name, given.images), names)
    if not isinstance(given, tuple) or len(given) != 2:
        raise UserError(f"The {default_name} data must be a pair (images, labels)")
    images = channels_last(default_name, given[0])
    labels = _label_names(default_name, given[1])
    if len(labels) != len(images):
        raise UserError(f"The {default_name} data has {len(images)} images but {len(labels)} labels")
    return array_domain(default_name, images, labels)


def channels_last(name: str, images: Images) -> np.ndarray | list[np.ndarray]:
    """A view [N,H,W,1 or 3] of the same memory, or a list of such [H,W,1 or 3]."""
    if isinstance(images, list | tuple):
        if not images:
            raise UserError(f"There are no images in {name!r}")
        return [_one_image(f"image {row + 1} of {name!r}", image) for row, image in enumerate(images)]
    pixels = as_numpy(images)
    if pixels.dtype != np.uint8:
        raise UserError(f"The images of {name!r} are {pixels.dtype}; they must be uint8 (0 to 255)")
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3):  # grey images without a channel dimension
        return pixels[..., None]
    if pixels.ndim == 4 and pixels.shape[3] in (1, 3):
        return pixels
    if pixels.ndim == 4 and pixels.shape[1] in (1, 3):
        return pixels.transpose(0, 2, 3, 1)
    raise UserError(
        f"The images of {name!r} have the shape {list(pixels.shape)}; "
        "expected [N,H,W] or, with 1 or 3 channels, [N,H,W,C] or [N,C,H,W]"
    )


def _one_image(name: str, image: Any) -> np.ndarray:
    try:
        pixels = pixels_of(image) if isinstance(image, Image.Image) else as_numpy(image)
    except BadImage as error:
        raise UserError(f"{name}: {error}") from error
    if pixels.dtype != np.uint8:
        raise UserError(f"{name} is {pixels.dtype}; it must be uint8 (0 to 255)")
    if pixels.ndim == 2:
        return pixels[..., None]
    if pixels.ndim == 3 and pixels.shape[2] in (1, 3):
        return pixels
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        return pixels.transpose(1, 2, 0)
    raise UserError(
        f"{name} has the shape {list(pixels.shape)}; expected [H,W] or, with 1 or 3 channels, [H,W,C] or [C,H,W]"
    )


def as_numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _label_names(name: str, labels: Labels) -> list[str]:
    values = as_numpy(labels)
    if values.ndim == 1 and (values.dtype.kind in "iuU" or all(isinstance(value, str) for value in values)):
        return [str(value) for value in values.tolist()]
    raise UserError(f"The labels of {name!r} must be one list of whole numbers or strings, not {values.dtype}")
