"""RandAugment and Cutout of FixMatch on a whole batch, with different operations per image.

Sohn et al. 2020, appendix; Cubuk et al. 2019; DeVries and Taylor 2017. No control flow and no shape depends on values:
all operations are computed, and the draw selects among the results.
"""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops._shared import grey_of, per_sample, wide_matmul

RAND_AUGMENT_UNIFORMS = 6  # two operations (kind, magnitude) and the position of the cutout
RANDOM_WARP_UNIFORMS = 6
RAND_AUGMENT_OPS = (
    "identity",
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "brightness",
    "contrast",
    "colour",
    "sharpness",
    "autocontrast",
    "posterize",
    "solarize",
)


def rand_augment(x: Tensor, uniform: Tensor) -> Tensor:
    """Two random operations per image, the geometric ones first, then Cutout. [N,3,S,S] in [0, 1], [N,6] -> [N,3,S,S].

    `uniform` holds, per image: operation, magnitude, operation, magnitude, row and column of the cutout centre.
    """
    last = len(RAND_AUGMENT_OPS) - 1
    slots = [((u[:, 0] * (last + 1)).long().clamp(0, last), u[:, 1]) for u in uniform[:, :4].split(2, 1)]
    first, second = (affine_matrix(*slot) for slot in slots)
    x = warp(x, wide_matmul(first, second))
    for slot in slots:
        x = photometric(x, *slot)
    side = x.shape[-1]
    row, column = (uniform[:, 4:6] * side).long().clamp(0, side - 1).unbind(1)
    return cutout(x, row, column, side // 2)


def affine_matrix(operation: Tensor, magnitude: Tensor) -> Tensor:
    """Sampling matrix in coordinates -1..1 (x, y, 1); the identity if the operation is not geometric.

    Rotation up to 30 degrees about the centre; shear up to 0.3, fixed at the top or left edge; translation up to 0.3
    of the side. [N] operation, [N] in [0, 1] -> [N,3,3].
    """

    def amount(name: str, most: float) -> Tensor:
        return torch.where(_is(operation, name), most * (2 * magnitude - 1), 0)

    angle = amount("rotate", pi / 6)
    shear_x, shear_y = amount("shear_x", 0.3), amount("shear_y", 0.3)
    # at most one of these is nonzero, so their effects add up
    top = torch.stack([angle.cos(), shear_x - angle.sin(), shear_x + 2 * amount("translate_x", 0.3)], 1)
    middle = torch.stack([shear_y + angle.sin(), angle.cos(), shear_y + 2 * amount("translate_y", 0.3)], 1)
    zero = torch.zeros_like(angle)
    return torch.stack([top, middle, torch.stack([zero, zero, zero + 1], 1)], 1)


def random_warp(x: Tensor, uniform: Tensor, strength: float | Tensor) -> Tensor:
    """Random rotation, scaling, shear and translation per image, with border padding. [N,C,S,S], [N,6].

    With strength 1: rotation up to 30 degrees, scaling by up to 1.5 either way, shear up to 0.3, translation up to an
    eighth of the side.
    """
    turn, zoom, shear_x, shear_y, shift_x, shift_y = (strength * (2 * uniform - 1)).unbind(-1)
    scale, angle = 1.5**zoom, turn * pi / 6
    cos, sin = scale * angle.cos(), scale * angle.sin()
    shear_x, shear_y = 0.3 * shear_x, 0.3 * shear_y
    top = torch.stack([cos - sin * shear_y, cos * shear_x - sin, shift_x / 4], 1)
    middle = torch.stack([sin + cos * shear_y, sin * shear_x + cos, shift_y / 4], 1)
    return warp(x, torch.stack([top, middle], 1), "border")


def warp(x: Tensor, matrix: Tensor, padding: str = "zeros") -> Tensor:
    """Bilinear resampling per image, by default with zero padding. [N,C,S,S], [N,3,3] -> [N,C,S,S]."""
    grid = F.affine_grid(matrix[:, :2].to(x.dtype), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode=padding, align_corners=False)


def photometric(x: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """The photometric operation of each image, if any. [N,3,S,S], [N], [N] in [0, 1] -> [N,3,S,S].

    Brightness, contrast, colour and sharpness blend 5 % to 95 % of the image with black, its mean grey, its grey
    version or its smoothed version.
    """

    def chosen(name: str) -> Tensor:
        return per_sample(_is(operation, name), x)

    magnitude = magnitude.to(x.dtype)
    grey = grey_of(x)
    other = torch.where(chosen("contrast"), grey.mean((2, 3), keepdim=True), torch.zeros_like(x))
    other = torch.where(chosen("colour"), grey, other)
    other = torch.where(chosen("sharpness"), smooth(x), other)
    blends = chosen("brightness") | chosen("contrast") | chosen("colour") | chosen("sharpness")
    out = torch.where(blends, torch.lerp(other, x, per_sample(0.05 + 0.9 * magnitude, x)), x)
    out = torch.where(chosen("autocontrast"), autocontrast(x), out)
    out = torch.where(chosen("posterize"), posterize(x, 4 + (5 * magnitude).long().clamp(0, 4)), out)
    return torch.where(chosen("solarize"), solarize(x, magnitude), out)


def smooth(x: Tensor) -> Tensor:
    """3 x 3 mean with centre weight 5; border pixels are unchanged. [N,C,S,S] -> [N,C,S,S]."""
    out = x.clone()
    out[..., 1:-1, 1:-1] = (9 * F.avg_pool2d(x, 3, 1) + 4 * x[..., 1:-1, 1:-1]) / 13
    return out


def autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel to 0..1; constant channels are unchanged. [N,C,S,S] -> [N,C,S,S]."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    spread = high - low
    return torch.where(spread > 0, (x - low) / torch.where(spread > 0, spread, 1), x)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep only the highest bits of each byte. [N,C,S,S] in [0, 1], [N] int64 in 1..8 -> [N,C,S,S]."""
    step = per_sample(torch.exp2((8 - bits).to(x.dtype)), x)
    return ((255 * x).round() / step).floor() * step / 255


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Invert pixels at or above the threshold. [N,C,S,S] in [0, 1], [N] -> [N,C,S,S]."""
    return torch.where(x < per_sample(threshold, x), x, 1 - x)


def cutout(x: Tensor, row: Tensor, column: Tensor, side: int) -> Tensor:
    """A grey square centred on a pixel, clipped at the image border. [N,C,S,S], [N], [N] -> [N,C,S,S]."""

    def inside(centre: Tensor, length: int) -> Tensor:
        distance = torch.arange(length, device=x.device) - centre.unsqueeze(1)
        return (distance >= -(side // 2)) & (distance < side - side // 2)

    square = inside(row, x.shape[-2])[:, None, :, None] & inside(column, x.shape[-1])[:, None, None, :]
    return torch.where(square, 0.5, x)


def _is(operation: Tensor, name: str) -> Tensor:
    return operation == RAND_AUGMENT_OPS.index(name)
