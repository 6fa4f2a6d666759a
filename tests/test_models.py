"""Networks: any timm backbone, whatever it says of itself."""

from __future__ import annotations

import pytest
import torch

from proud.errors import UserError
from proud.models import build_net, model_spec


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 64),
        ("mobilenetv3_small_050", 64),  # gives other features than it counts
        ("vit_tiny_patch16_224", 96),  # made for one size
        ("convnext_atto", 64),
    ],
)
def test_backbones_of_several_kinds(name: str, size: int) -> None:
    net = build_net(model_spec(name, 3, size))
    features, logits = net(torch.zeros(2, 3, size, size))
    assert features.shape == (2, net.num_features) and logits.shape == (2, 3)
    assert net.training


def test_a_size_that_a_backbone_cannot_take() -> None:
    with pytest.raises(UserError, match=r"swin_tiny_patch4_window7_224 .* 30×30 pixels .*another --size"):
        build_net(model_spec("swin_tiny_patch4_window7_224", 3, 30))
