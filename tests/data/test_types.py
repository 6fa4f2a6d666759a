"""The types that carry images."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from proud.data.types import Audit, LabeledDomain, UnlabeledDomain

IMAGES = torch.zeros((2, 3, 4, 4), dtype=torch.uint8)


def test_domains_know_their_length_and_are_frozen() -> None:
    domain = UnlabeledDomain("north", IMAGES, ("a", "b"))
    assert len(domain) == 2 and len(LabeledDomain("c", IMAGES, torch.tensor([0, 1]), ("x", "y"))) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        domain.name = "south"  # type: ignore[misc]


def test_audit_counts_known_labels() -> None:
    assert Audit("north", torch.tensor([-1, 0, 3]), ("a", "b", "c")).known == 2


@pytest.mark.parametrize(
    "images", [IMAGES.float(), IMAGES[0], IMAGES[:, :1], IMAGES[..., :3], IMAGES.permute(0, 2, 3, 1)]
)
def test_wrong_images_are_refused(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="uint8"):
        UnlabeledDomain("north", images, ("a", "b"))


def test_wrong_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="labels must be"):
        LabeledDomain("c", IMAGES, torch.tensor([0, 1, 1]), ("x", "y"))
    with pytest.raises(ValueError, match="labels must be"):
        LabeledDomain("c", IMAGES, torch.tensor([0.0, 1.0]), ("x", "y"))
    with pytest.raises(ValueError, match="1 ids"):
        UnlabeledDomain("north", IMAGES, ("a",))
    with pytest.raises(ValueError, match="labels must be"):
        UnlabeledDomain("north", IMAGES, ("a", "b"), known=torch.tensor([1]))
