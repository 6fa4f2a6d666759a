"""MixStyle (Zhou et al., ICLR 2021) between the blocks of a convolutional backbone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from proud.nets.models import Net

LAYERS = 3
MOST_GAIN = 2.0  # a nearly silent channel would be blown up a thousandfold, and its gradient with it


def mix_style(x: Tensor, ratio: Tensor, partner: Tensor, applied: Tensor) -> Tensor:
    """Where `applied` ([1] bool), each map gets a blend of its statistics and its partner's. [N,C,H,W], [N], [N]."""
    wide = x.float()
    mean = wide.mean((2, 3), keepdim=True).detach()
    std = (wide.var((2, 3), correction=0, keepdim=True) + 1e-6).sqrt().detach()
    ratio = ratio[:, None, None, None]
    mixed_mean = ratio * mean + (1 - ratio) * mean[partner]
    mixed_std = ratio * std + (1 - ratio) * std[partner]
    gain = (mixed_std / std).clamp_max(MOST_GAIN)
    return torch.where(applied, (wide - mean) * gain + mixed_mean, wide).to(x.dtype)


class MixStyle:
    """Mixes styles where the second, third and fourth block of a network's backbone begin, while `draw` is set.

    draw: ratios [LAYERS,N], partners [LAYERS,N] and whether to mix [LAYERS].
    """

    def __init__(self, net: Net) -> None:
        self.draw: tuple[Tensor, Tensor, Tensor] | None = None
        net.separate = False
        for layer, module in enumerate(later_blocks(net.backbone)):
            module.register_forward_pre_hook(partial(self._mix, layer))

    def _mix(self, layer: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
        if self.draw is None:
            return None
        ratio, partner, applied = self.draw
        return (mix_style(inputs[0], ratio[layer], partner[layer], applied[layer : layer + 1]),)


def later_blocks(backbone: Any) -> list[nn.Module]:
    """The second, third and fourth of a backbone's four blocks."""
    if hasattr(backbone, "convolutions"):
        return list(backbone.convolutions[1:])
    if hasattr(backbone, "layer4"):
        return [backbone.layer2, backbone.layer3, backbone.layer4]
    raise UserError("EID mixes styles between the blocks of a ResNet or of the digits net: choose such a --model.")
