"""Statistics of feature maps."""

from __future__ import annotations

import torch

from proud.ops.norm import blended_statistics, image_statistics, pooled_statistics


def test_statistics_of_a_batch_are_pooled_from_those_of_its_images() -> None:
    x = torch.randn(5, 4, 6, 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    x = 2 * x + torch.arange(5.0, dtype=torch.float64)[:, None, None, None]  # images differ
    mean, variance = pooled_statistics(*image_statistics(x))
    assert torch.allclose(mean, x.mean((0, 2, 3))) and torch.allclose(variance, x.var((0, 2, 3), correction=0))


def test_blended_statistics_are_those_of_a_mixture() -> None:
    own, others = torch.randn(
        2, 1, 3, 50, 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )  # three values in four are of the others
    mixed = torch.cat([own, others, others, others], 2)
    own_mean, own_variance = image_statistics(own)
    mean, variance = (value[0] for value in image_statistics(others))
    want_mean, want_variance = image_statistics(mixed)
    found = blended_statistics(own_mean, own_variance, mean, variance, 0.25)
    assert torch.allclose(found[0], want_mean) and torch.allclose(found[1], want_variance)
