"""Selection of images to label: uncertain, representative and diverse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proud.trust import label_next
from proud.trust.label_next import choose_images, density


def clusters(sizes: list[int], seed: int = 0) -> torch.Tensor:
    """Tight groups of directions in 8 dimensions."""
    random = np.random.default_rng(seed)
    centres = np.eye(8)[: len(sizes)]
    rows = [
        centre + random.normal(0, 0.05, 8) for centre, size in zip(centres, sizes, strict=True) for _ in range(size)
    ]
    return torch.tensor(np.array(rows), dtype=torch.float32)


def test_density_equals_the_slow_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_next, "COSINES", 7 * 30)  # seven rows at a time
    unit = torch.nn.functional.normalize(torch.randn(30, 5, generator=torch.Generator().manual_seed(2)), dim=1)
    found = density(unit, neighbours=4)
    for row in range(30):
        cosines = sorted((float(unit[row] @ unit[other]) for other in range(30) if other != row), reverse=True)
        assert found[row].item() == pytest.approx((1 + np.mean(cosines[:4])) / 2, abs=1e-5)
    assert density(unit[:1]).tolist() == [1]


def test_every_cluster_is_selected_from() -> None:
    features = clusters([20, 20, 20, 20])
    chosen = choose_images(features, torch.ones(80), 4)
    assert sorted(int(row) // 20 for row in chosen) == [0, 1, 2, 3]


def test_uncertain_images_come_first_and_outliers_do_not() -> None:
    features = clusters([20, 20, 1])
    uncertainty = torch.full((41,), 0.1)
    uncertainty[20:40] = 1.0
    assert 20 <= int(choose_images(features, uncertainty, 1)[0]) < 40
    uncertainty[40] = 1.0  # an outlier represents no other image
    assert int(choose_images(features, uncertainty, 1)[0]) != 40


def test_known_images_are_not_selected_and_repel_the_selection() -> None:
    features = clusters([10, 10])
    known = torch.full((20,), -1)
    known[:3] = 0
    chosen = choose_images(features, torch.ones(20), 30, known)
    assert not set(chosen.tolist()) & {0, 1, 2}
    assert len(chosen) == len(set(chosen.tolist())) == 17
    assert int(chosen[0]) >= 10


def test_no_uncertainty_at_all_is_no_error() -> None:
    assert len(choose_images(clusters([5, 5]), torch.zeros(10), 4)) == 4
