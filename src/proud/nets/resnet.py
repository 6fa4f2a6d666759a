"""ResNet-18 and 34 for saved models: timm's values and names of weights, without timm, whose import takes seconds."""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}


def blocks_of(name: str) -> tuple[int, ...]:
    """Of a timm name, with or without the tag of its weights; () for other networks."""
    return BLOCKS.get(name.partition(".")[0], ())


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(x.add_(shortcut))


class ResNet(nn.Module):
    """Features of images. [N,3,S,S] -> [N,512]."""

    def __init__(self, blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs, stages = 64, []
        for stage, count in enumerate(blocks):
            outputs = 64 * 2**stage
            strides = [1 if stage == 0 else 2] + [1] * (count - 1)
            layers = [Block(outputs if number else inputs, outputs, stride) for number, stride in enumerate(strides)]
            stages.append(nn.Sequential(*layers))
            inputs = outputs
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.num_features = inputs

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

    def folded(self) -> ResNet:
        """A copy for evaluation alone: every batch norm is part of the convolution before it."""
        copy = deepcopy(self).eval()
        for module in copy.modules():
            for convolution, norm in (("conv1", "bn1"), ("conv2", "bn2"), ("0", "1")):
                if isinstance(getattr(module, norm, None), nn.BatchNorm2d):
                    both = fuse_conv_bn_eval(getattr(module, convolution), getattr(module, norm))
                    setattr(module, convolution, both)
                    setattr(module, norm, nn.Identity())
        return copy
