"""Line drawings of images, which keep only shape."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from proud.ops._shared import grey_of, per_channel, per_sample
from proud.ops.augment import normalize

RANDOM_OUTLINE_UNIFORMS = 2
STEEPNESS = 6.0


def random_outline(
    x: Tensor, uniform: Tensor, share: float | Tensor, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Turn a random share of the images into line drawings. [N,3,S,S], [N,2] -> [N,3,S,S].

    Input and output are normalised with mean and std. `uniform` holds, per image: the selection and the sparsity.
    """
    pixels = torch.addcmul(per_channel(mean, x), x, per_channel(std, x))
    drawn = normalize(outline(pixels, 2 * uniform[:, 1]).expand_as(x), mean, std)
    return torch.where(per_sample(uniform[:, 0] < share, x), drawn, x)


def outline(x: Tensor, threshold: Tensor) -> Tensor:
    """Dark lines on white at the edges of the smoothed grey image. [N,3,S,S], [N] -> [N,1,S,S] in [0, 1].

    A pixel is dark if its gradient exceeds the mean of the image by more than `threshold` standard deviations.
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
