"""Networks f = h ∘ g: the four-convolution digits net or any timm backbone, and a weight-normed linear head."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from proud.config import NOTHING, Square
from proud.data.decode import PixelFormat, stored_side
from proud.errors import UserError
from proud.nets.resnet import ResNet, blocks_of
from proud.nets.weights import load_backbone
from proud.randomness import seed_for

_CACHED_PIXELS = 64 * 32 * 32  # of images whose activations in the digits net stay in a CPU's cache
_GLOBAL_GENERATOR = threading.Lock()  # initial weights are drawn from torch's global generator


@dataclass(frozen=True)
class ModelSpec:
    """What is needed to build a network again, stored beside every saved model."""

    name: str  # "digits" or a timm name
    classes: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    square: Square = "middle"  # how non-square images become square

    @property
    def pixels(self) -> PixelFormat:
        """The format of stored images for this network."""
        return PixelFormat(stored_side(self.size), self.square)


class FirstConv2d(nn.Conv2d):
    """A convolution of images, faster on CUDA: cuDNN is slow with three input channels, and fast with eight.

    When compiled, a 3×3 convolution is a matrix product with every pixel's 27 neighbours, padded to 32.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            return super().forward(x)
        if torch.compiler.is_compiling() and (self.kernel_size, self.stride, self.padding) == ((3, 3), (1, 1), (1, 1)):
            return self._product(x)
        padding = (0, 0, 0, 0, 0, 8 - self.in_channels)
        x, weight = nn.functional.pad(x, padding), nn.functional.pad(self.weight, padding)
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation)

    def _product(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        windows = nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
        neighbours = windows.permute(0, 2, 3, 1, 4, 5).reshape(count * height * width, channels * 9)
        extra = -neighbours.shape[1] % 32
        neighbours = nn.functional.pad(neighbours, (0, extra))
        weight = nn.functional.pad(self.weight.flatten(1), (0, extra))
        return nn.functional.linear(neighbours, weight, self.bias).view(count, height, width, -1).permute(0, 3, 1, 2)


def specialize(backbone: nn.Module) -> nn.Module:
    """Replace first convolutions by the faster equivalent. Names and values of the weights stay."""
    for module in backbone.modules():
        if (
            type(module) is nn.Conv2d
            and module.in_channels == 3
            and module.groups == 1
            and module.padding_mode == "zeros"
        ):
            module.__class__ = FirstConv2d
    return backbone


class DigitsBackbone(nn.Module):
    """4 × [3×3 convolution, 64 channels → ReLU → 2×2 max-pool], flattened: 256 features at 32×32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        if size % 16:
            raise UserError(f"The digits net needs a --size that is a multiple of 16, got {size}.")
        channels = (3, 64, 64, 64, 64)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(channels))
        self.pool = nn.MaxPool2d(2)
        self.num_features = 64 * (size // 16) ** 2
        for convolution in self.convolutions:
            nn.init.kaiming_normal_(cast(nn.Conv2d, convolution).weight, nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, cast(nn.Conv2d, convolution).bias))

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            # max-pool and ReLU commute; pooling first leaves a quarter of the ReLU's work
            x = nn.functional.relu(self.pool(convolution(x)))
        return x.flatten(1)


class WeightNormLinear(nn.Module):
    """A linear layer whose weights are lengths times directions, one per class.

    torch's own weight norm makes a new class for every layer, so compiled code could not be reused by other runs.
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        linear = nn.Linear(num_features, num_classes)
        nn.init.xavier_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.bias = linear.bias
        start = linear.weight.detach()
        self.length = nn.Parameter(start.new_empty(num_classes, 1) if start.is_meta else torch.norm_except_dim(start))
        self.direction = linear.weight

    @property
    def weight(self) -> Tensor:
        return torch._weight_norm(self.direction, self.length, 0)

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(features, self.weight, self.bias)


class Net(nn.Module):
    """f = h ∘ g. Calling it gives (features g(x), logits h(g(x)))."""

    def __init__(self, backbone: nn.Module, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.backbone = specialize(backbone)
        self.num_features = num_features
        self.head = WeightNormLinear(num_features, num_classes)
        self.separate = isinstance(backbone, DigitsBackbone)
        """whether an image's features depend on that image alone, in training, too"""

    def features(self, x: Tensor) -> Tensor:
        """g(x)."""
        x = x.contiguous(memory_format=torch.channels_last)
        if x.is_cuda or not self.separate or torch.compiler.is_compiling():
            return self.backbone(x)
        pieces = x.split(max(1, _CACHED_PIXELS // (x.shape[-2] * x.shape[-1])))
        return torch.cat([self.backbone(piece) for piece in pieces]) if len(pieces) > 1 else self.backbone(x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x)
        return features, self.head(features)


def model_spec(name: str, num_classes: int, size: int = 0, square: Square = "middle") -> ModelSpec:
    """The input format of a network; size 0 is the network's own."""
    if name == "digits":
        half = (0.5, 0.5, 0.5)
        return ModelSpec(name, num_classes, size or 32, half, half, square=square)
    import timm  # noqa: PLC0415

    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        name, _, tag = name.partition(".")
        there = timm.list_pretrained(f"{name}.*")[:20]
        raise UserError(f"{name} has no weights {tag!r}. Available: {', '.join(there) or 'none'}.") from error
    if config is None and not timm.is_model(name):
        close = timm.list_models(f"*{name.split('.')[0]}*")[:5]
        hint = f" Did you mean one of: {', '.join(close)}?" if close else ""
        raise UserError(f"Unknown model {name!r}: give `digits` or a timm model name.{hint}")
    mean = config.mean if config else (0.485, 0.456, 0.406)
    std = config.std if config else (0.229, 0.224, 0.225)
    side = config.input_size[-1] if config else 224
    return ModelSpec(name, num_classes, size or side, tuple(mean), tuple(std), square=square)


def check_weights(name: str, size: int, weights: str) -> None:
    """Before any image is decoded: can this network be built?"""
    if name == "digits" and size % 16:
        raise UserError(f"The digits net needs a --size that is a multiple of 16, got {size}.")
    if name == "digits" and weights not in ("auto", NOTHING):
        raise UserError("--weights FILE is for timm backbones; the digits net always starts from random weights.")
    if weights not in ("auto", NOTHING) and not Path(weights).is_file():
        raise UserError(f"--weights {weights}: no such file. Use `auto`, `none`, or a safetensors, .pth or .pt file.")


def build_net(spec: ModelSpec, weights: str = "none", seed: int = 0, purpose: str = "net", width: int = 0) -> Net:
    """A network whose initial weights depend on (seed, purpose) alone. `weights`: auto, none or a file.

    The number of features is measured unless `width` is given.
    """
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seed, "init", purpose))
        if spec.name == "digits":
            backbone: nn.Module = DigitsBackbone(spec.size)
        else:
            backbone = _timm_backbone(spec, pretrained=weights == "auto")
            if weights not in ("auto", "none"):
                load_backbone(backbone, Path(weights))
        return Net(backbone, width or count_features(backbone, spec), spec.classes)


def build_empty(spec: ModelSpec, width: int = 0) -> Net:
    """The network of a saved model, whose weights will be loaded. Where possible, without timm."""
    blocks = blocks_of(spec.name)
    if not blocks and spec.name != "digits":
        return build_net(spec, width=width)
    with WithoutInitialValues():
        backbone = ResNet(blocks) if blocks else DigitsBackbone(spec.size)
        return Net(backbone, backbone.num_features, spec.classes)


class WithoutInitialValues(TorchFunctionMode):
    """New weights keep what is in their memory. To draw them on the meta device, torch imports its compiler."""

    skipped = (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.skipped:
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def count_features(backbone: nn.Module, spec: ModelSpec) -> int:
    """Measured with one image: not every timm model states it correctly or accepts every image size."""
    was_training = backbone.training
    try:
        with torch.no_grad():
            features = backbone.eval()(torch.zeros(1, 3, spec.size, spec.size))
    except Exception as error:
        raise UserError(
            f"{spec.name} does not accept images of {spec.size}×{spec.size} pixels ({_first_line(error)}): choose "
            "another --size, or another --model."
        ) from error
    finally:
        backbone.train(was_training)
    if not isinstance(features, Tensor) or features.ndim != 2:
        raise UserError(f"{spec.name} does not return one feature vector per image: choose another --model.")
    return features.shape[1]


def _timm_backbone(spec: ModelSpec, pretrained: bool) -> nn.Module:
    import timm  # noqa: PLC0415

    create: Callable[..., nn.Module] = timm.create_model
    config = timm.get_pretrained_cfg(spec.name)
    other_size = config is not None and config.fixed_input_size and config.input_size[-1] != spec.size
    size = {"img_size": spec.size} if other_size else {}
    try:
        with from_cache_without_network() if pretrained else nullcontext():
            return create(spec.name, pretrained=pretrained, num_classes=0, **size)
    except Exception as error:
        if pretrained:
            _timm_backbone(spec, pretrained=False)  # an error of the size is not blamed on the download
        else:
            raise UserError(
                f"{spec.name} cannot be built for images of {spec.size}×{spec.size} pixels ({_first_line(error)}): "
                "choose another --size, or another --model."
            ) from error
        raise UserError(
            f"The pretrained weights of {spec.name} could not be downloaded ({type(error).__name__}). Give a local "
            "copy with `--weights FILE.safetensors`, or start from random weights with `--weights none`."
        ) from error


@contextmanager
def from_cache_without_network() -> Iterator[None]:
    """Offline, the hub's client would retry for most of a minute: use its cache only."""
    from huggingface_hub import constants  # noqa: PLC0415

    before = constants.HF_HUB_OFFLINE
    try:
        if not getproxies().keys() - {"no"}:
            socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
