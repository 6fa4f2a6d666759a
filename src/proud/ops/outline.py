"""Images as somebody would draw them: their outlines alone, or these over flat colours."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops._shared import grey_of, per_channel, per_sample
from proud.ops.augment import normalize

RANDOM_DRAWING_UNIFORMS = 4
STEEPNESS = 6.0


def random_drawing(
    x: Tensor, uniform: Tensor, lines: float, comic: float, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """A share of the images as line drawings, another one as comics, the rest as they are. [N,3,S,S], [N,4].

    The images are normalised with mean and std, before and after. `uniform` holds, per image: which, how sparse the
    lines are, how many shades and how vivid.
    """
    which, sparse, shades, vivid = uniform.unbind(1)
    pixels = torch.addcmul(per_channel(mean, x), x, per_channel(std, x))
    drawn = outline(pixels, 2 * sparse).expand_as(x)
    if comic:
        as_comic = (which >= lines) & (which < lines + comic)
        drawn = torch.where(per_sample(as_comic, x), drawn * flat_colours(pixels, 3 + 5 * shades, 1 + vivid), drawn)
    return torch.where(per_sample(which < lines + comic, x), normalize(drawn, mean, std), x)


def flat_colours(x: Tensor, shades: Tensor, vivid: Tensor) -> Tensor:
    """Smoothed, rounded to a few shades, and with stronger colours. [N,3,S,S], [N], [N] -> [N,3,S,S] in [0, 1]."""
    side = 2 * (x.shape[-1] // 64) + 1
    for _ in range(2 if side > 1 else 0):
        x = F.avg_pool2d(F.pad(x, (side // 2,) * 4, mode="replicate"), side, 1)
    shades, vivid = per_sample(shades, x), per_sample(vivid, x)
    x = (x * shades).round() / shades
    return torch.lerp(x.mean(1, keepdim=True), x, vivid).clamp(0, 1)


def outline(x: Tensor, threshold: Tensor) -> Tensor:
    """Dark lines on white where the smoothed grey image is steep. [N,3,S,S], [N] -> [N,1,S,S] in [0, 1].

    A pixel is dark when its slope is above the image's mean slope by more than `threshold` standard deviations.
    """
    grey = grey_of(x)
    for _ in range(max(1, round(x.shape[-1] / 56))):
        grey = F.avg_pool2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), 3, 1)
    padded = F.pad(grey, (1, 1, 1, 1), mode="replicate")
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    slope = (across.square() + down.square() + 1e-12).sqrt()
    middle = slope.mean((2, 3), keepdim=True)
    spread = (slope - middle).square().mean((2, 3), keepdim=True).sqrt() + 1e-6
    return (STEEPNESS * (per_sample(threshold, x) - (slope - middle) / spread)).sigmoid()
