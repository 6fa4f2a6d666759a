"""Line drawings against a float64 twin that loops over pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from proud.ops import outline, random_outline

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)


def random_images(n: int, side: int) -> Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def twin(image: np.ndarray, threshold: float) -> np.ndarray:
    side = image.shape[-1]

    def at(image: np.ndarray, i: int, j: int) -> float:
        return image[min(max(i, 0), side - 1), min(max(j, 0), side - 1)]

    grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    for _ in range(max(1, round(side / 56))):
        smoothed = np.zeros_like(grey)
        for i in range(side):
            for j in range(side):
                smoothed[i, j] = sum(at(grey, i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)) / 9
        grey = smoothed
    slope = np.zeros_like(grey)
    for i in range(side):
        for j in range(side):
            slope[i, j] = np.hypot(at(grey, i, j + 1) - at(grey, i, j - 1), at(grey, i + 1, j) - at(grey, i - 1, j))
    ink = (slope - slope.mean()) / slope.std() - threshold
    return 1 / (1 + np.exp(6 * ink))


@pytest.mark.parametrize("side", [8, 84])
def test_outline(side: int) -> None:
    x, threshold = random_images(2, side), torch.tensor([0.3, 1.5], dtype=torch.float64)
    got = outline(x, threshold)
    for n in range(2):
        np.testing.assert_allclose(got[n, 0], twin(x[n].numpy(), float(threshold[n])), atol=1e-4)


def test_a_share_of_the_images_is_drawn_and_the_others_stay() -> None:
    x = (random_images(2, 8) - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    got = random_outline(x, torch.tensor([[0.2, 0.25], [0.3, 0.25]]).double(), 0.25, MEAN, STD)
    assert torch.equal(got[1], x[1])
    pixels = got[0] * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    expected = twin(random_images(2, 8)[0].numpy(), 0.5)
    for channel in pixels:
        np.testing.assert_allclose(channel, expected, atol=1e-4)


def test_an_empty_image_stays_white_at_its_mean_slope() -> None:
    got = outline(torch.full((1, 3, 8, 8), 0.7), torch.ones(1))
    assert torch.isfinite(got).all() and got.min() > 0.99
