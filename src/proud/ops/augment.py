"""Batch augmentation with separate parameters per image, passed as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import pi

import numpy as np
import torch
from torch import Tensor

from proud.ops._shared import GREY, constant, grey_of, per_channel, per_sample

_YIQ = np.array([GREY, (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135)])
_CHROMA = tuple((np.eye(3) - np.array(GREY)).flatten().tolist())  # I - L, the projection to chroma
# generator of the hue rotation: I to Q, Q to -I, luma Y fixed; red moves towards yellow
_HUE_TURN = tuple((np.linalg.inv(_YIQ) @ np.array([[0, 0, 0], [0, 0, 1], [0, -1, 0]]) @ _YIQ).flatten().tolist())


@dataclass(frozen=True, eq=False)
class AugmentDraw:
    """Parameters of one augmented view of N images."""

    top: Tensor  # [N] int64, crop offset
    left: Tensor  # [N] int64
    flip: Tensor  # [N] bool
    brightness: Tensor  # [N], factors around 1
    contrast: Tensor  # [N]
    saturation: Tensor  # [N]
    hue: Tensor  # [N], fraction of a turn
    gray: Tensor  # [N] bool

    def slice(self, rows: slice) -> AugmentDraw:
        """The draw of a slice of the images."""
        return AugmentDraw(*(getattr(self, field.name)[rows] for field in fields(self)))


def augment_draw(
    uniform: Tensor,
    margin: int,
    *,
    translate_p: float = 0.5,
    flip_p: float = 0.5,
    jitter: tuple[float, float, float, float] | Tensor = (0.4, 0.4, 0.4, 0.1),
    gray_p: float | Tensor = 0.2,
) -> AugmentDraw:
    """Uniform numbers to a draw; margin = stored side - crop side. [N,9] -> AugmentDraw."""
    translate, flip, gray = uniform[:, 0], uniform[:, 3], uniform[:, 8]
    offsets = (uniform[:, 1:3] * (margin + 1)).long().clamp(0, margin)
    top, left = offsets.masked_fill(translate[:, None] >= translate_p, margin // 2).unbind(-1)
    # factors 1 ± reach, and a hue of 0 ± reach
    reach = constant(jitter, uniform)
    lowest = constant((1, 1, 1, 0), uniform) - reach
    brightness, contrast, saturation, hue = torch.addcmul(lowest, uniform[:, 4:8], 2 * reach).unbind(-1)
    return AugmentDraw(top, left, flip < flip_p, brightness, contrast, saturation, hue, gray < gray_p)


def crop(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """A size x size window per image at its offset. [N,C,S,S], [N], [N] -> [N,C,size,size], any dtype."""
    steps = torch.arange(size, device=images.device)
    return _gather_pixels(images, top.unsqueeze(-1) + steps, left.unsqueeze(-1) + steps)


def center_crop(images: Tensor, size: int) -> Tensor:
    """Centre crop. [N,C,S,S] -> [N,C,size,size]."""
    top, left = ((side - size) // 2 for side in images.shape[-2:])
    return images[..., top : top + size, left : left + size]


def flip(x: Tensor, mask: Tensor) -> Tensor:
    """Horizontal flip where the mask is set. [N,C,H,W], [N] -> [N,C,H,W]."""
    return torch.where(per_sample(mask, x), x.flip(-1), x)


def quarter_turns(x: Tensor, turns: Tensor) -> Tensor:
    """Turn counterclockwise by 0 to 3 quarters. [N,C,S,S], [N] int64 -> [N,C,S,S]."""
    half = torch.where(per_sample(turns >= 2, x), x.flip(-2, -1), x)
    return torch.where(per_sample(turns % 2 == 1, x), half.rot90(1, (-2, -1)), half)


def turns_draw(uniform: Tensor) -> Tensor:
    """Uniform numbers to quarter turns that do not depend on whether they are below a half. [N] -> [N] int64."""
    return (8 * uniform).long().clamp(0, 7) % 4


def grayscale(x: Tensor, mask: Tensor) -> Tensor:
    """Convert to grey where the mask is set. [N,3,H,W], [N] -> [N,3,H,W]."""
    return torch.where(per_sample(mask, x), grey_of(x), x)


def color_jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """One affine colour map per image, clamped to [0, 1]. [N,3,H,W] in [0, 1], [N] each -> [N,3,H,W].

    Brightness scales, contrast blends with the mean grey, saturation with the grey image, hue rotates the YIQ chroma.
    Unlike torchvision: always in this order, clamped once at the end, hue in YIQ instead of HSV.
    """
    matrix, offset = _jitter_map(x, brightness, contrast, saturation, hue)
    columns = matrix[..., None, None].unbind(2)  # three of [N,3,1,1]
    out = per_sample(offset, x)
    for channel, column in enumerate(columns):
        out = torch.addcmul(out, x[:, channel : channel + 1], column)
    return out.clamp(0, 1)


def normalize(x: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """(x - mean) / std per channel. [N,C,H,W], [C], [C] -> [N,C,H,W]."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return (x - per_channel(mean, x)) / per_channel(std, x)
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    return torch.addcmul(per_channel(shift, x), x, per_channel([1 / s for s in std], x))


def to_unit(images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scale bytes 0..255 to [0, 1]."""
    return images / 255 if dtype == torch.float32 else images.to(dtype) / 255


def augment(
    images: Tensor,
    draw: AugmentDraw,
    size: int,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Crop, flip, jitter, grayscale, normalise. [N,3,S,S] uint8 -> [N,3,size,size]."""
    steps = torch.arange(size, device=images.device)
    rows = draw.top.unsqueeze(-1) + steps
    columns = draw.left.unsqueeze(-1) + torch.where(draw.flip.unsqueeze(-1), size - 1 - steps, steps)
    x = to_unit(_gather_pixels(images, rows, columns), torch.promote_types(dtype, torch.float32))
    x = color_jitter(x, draw.brightness, draw.contrast, draw.saturation, draw.hue)
    return normalize(grayscale(x, draw.gray), mean, std).to(dtype)


def evaluation_view(
    images: Tensor,
    size: int,
    mean: Sequence[float] | Tensor,
    std: Sequence[float] | Tensor,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Centre crop, normalise. [N,3,S,S] uint8 -> [N,3,size,size]."""
    x = to_unit(center_crop(images, size), torch.promote_types(dtype, torch.float32))
    return normalize(x, mean, std).to(dtype)


def _gather_pixels(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """out[n,c,i,j] = images[n, c, rows[n,i], columns[n,j]]. [N,C,S,S], [N,h], [N,w] -> [N,C,h,w]."""
    places = (rows * images.shape[-1]).unsqueeze(-1) + columns.unsqueeze(-2)  # [N,h,w], indices into the flat image
    picked = images.flatten(2).gather(2, places.flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1))
    return picked.unflatten(2, places.shape[1:])


def _jitter_map(
    x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor
) -> tuple[Tensor, Tensor]:
    """Matrices and grey offsets of the colour map. [N,3,H,W], [N]... -> [N,3,3], [N].

    Grey colours are fixed points of saturation and hue, which act on the chroma alone: with the luma projection
    L = 1 w^T, the matrix is b c (L + s (cos (I - L) + sin G)) and the offset b (1 - c) times the mean grey.
    """
    brightness, contrast, saturation, hue = (
        t.to(x.dtype)[:, None, None] for t in (brightness, contrast, saturation, hue)
    )
    grey = constant(GREY, x)
    chroma, turn = (constant(values, x).view(3, 3) for values in (_CHROMA, _HUE_TURN))
    angle, scale = 2 * pi * hue, brightness * contrast
    turned = torch.addcmul(angle.cos() * chroma, angle.sin(), turn)
    matrix = scale * torch.addcmul(grey.expand(3, 3), saturation, turned)
    mean_grey = (x.mean((2, 3)) * grey).sum(-1)
    return matrix, (brightness - scale).flatten() * mean_grey
