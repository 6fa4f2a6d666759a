"""Normalisation statistics: per image, pooled over images, and blends of both."""

from __future__ import annotations

import torch
from torch import Tensor


def image_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each feature map. [N,C,H,W] -> [N,C], [N,C]."""
    variance, mean = torch.var_mean(x, (2, 3), correction=0)
    return mean, variance


def pooled_statistics(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Statistics of all images together from those of each image. [N,C], [N,C] -> [C], [C]."""
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def blended_statistics(
    own_mean: Tensor, own_variance: Tensor, mean: Tensor, variance: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """Statistics of a mixture with weight `share` on the image itself. [N,C], [N,C], [C], [C] -> [N,C], [N,C]."""
    between = share * (1 - share) * (own_mean - mean).square()
    return torch.lerp(mean, own_mean, share), torch.lerp(variance, own_variance, share) + between
