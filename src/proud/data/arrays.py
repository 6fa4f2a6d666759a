"""Images and labels handed over in Python, as arrays that `decode` can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from proud.data.decode import BadImage, pixels_of
from proud.errors import UserError

Images = np.ndarray | Tensor | list[Any]
"""uint8, [N,H,W,C] or [N,C,H,W], with 1 or 3 channels; or a list of such images and PIL images, of any size."""

Labels = Sequence[Any] | np.ndarray | Tensor
"""One integer or one string for each image."""


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


def label_names(name: str, labels: Labels) -> list[str]:
    values = as_numpy(labels)
    if values.ndim == 1 and (values.dtype.kind in "iuU" or all(isinstance(value, str) for value in values)):
        return [str(value) for value in values.tolist()]
    raise UserError(f"The labels of {name!r} must be one list of integers or strings, not {values.dtype}")
