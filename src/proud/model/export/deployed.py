"""A saved model as one torch module, from images of any size to answers: what the exported files contain."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from proud import ops
from proud.config import Square
from proud.data.decode import GREY
from proud.model.answers import AnswerOptions
from proud.model.predict import Model
from proud.nets.models import Net
from proud.ops.resample import Span, bilinear_taps, resample
from proud.trust.calibration import probabilities
from proud.trust.conformal import up_to_quantile


class Axis(NamedTuple):
    """How the pixels of one axis are resampled."""

    pixels: Tensor  # [size, taps]
    weights: Tensor  # [size, taps]
    inside: Tensor  # [size] bool; outside of the image is grey


class Squared(nn.Module):
    """The pixels that the network sees: `in_square`, and the evaluation's centre crop. Bytes [N,H,W,3] -> [N,3,S,S]."""

    def __init__(self, size: int, side: int, square: Square) -> None:
        super().__init__()
        self.size, self.side, self.square = size, side, square

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[1:3]
        longest = torch.sym_min(height, width) if self.square == "middle" else torch.sym_max(height, width)
        # padded images are resampled to a rounded length: at most half as many pixels more
        taps = (3 if self.square == "pad" else 2) * -(-longest // self.side) + 3
        rows, columns = self._axis(height, width, taps), self._axis(width, height, taps)
        found = in_order(images.permute(0, 3, 1, 2), rows, columns)
        if self.square == "stretch":
            tall = in_order(images.permute(0, 3, 2, 1), columns, rows).mT
            found = torch.where(scalar(height) > scalar(width), tall, found)
        if self.square == "pad":
            inside = rows.inside.unsqueeze(1) & columns.inside
            found = torch.where(inside, found, torch.full_like(found, GREY[0]))
        return found

    def _axis(self, length: int, other: int, taps: int | torch.SymInt) -> Axis:
        extent, across = scalar(length), scalar(other)
        left, count = torch.zeros_like(extent), torch.full_like(extent, self.side)
        if self.square == "middle":
            extent = torch.minimum(extent, across)
            left = ((scalar(length) - extent) / 2).floor()
        if self.square == "pad":
            count = (self.side * extent / torch.maximum(extent, across)).round().clamp_min(1.0)
        # counted from where `in_square` crops, so that numbers are rounded alike
        begin = torch.minimum(left, (extent / self.side).ceil() + 1)
        places = torch.arange(self.size, dtype=torch.float64) + (self.side - self.size) // 2
        places = places - ((self.side - count) / 2).floor()
        span = Span(scalar(length) - left + begin, begin, extent, count)
        pixels, weights = bilinear_taps(places, span, taps)
        return Axis(pixels + (left - begin).long(), weights, (places >= 0) & (places < count))


def scalar(length: int) -> Tensor:
    """A tensor also where the length is only known when the program runs."""
    return torch.full((), length, dtype=torch.float64)


def in_order(images: Tensor, rows: Axis, columns: Axis) -> Tensor:
    """Pillow rounds to bytes after each pass; the first is along the rows."""
    across = resample(images, columns.pixels, columns.weights)
    return resample(across.mT, rows.pixels, rows.weights).mT


class Deployed(nn.Module):
    """Images [N,H,W,3] uint8 -> the outputs in `names`, in that order.

    `probabilities` [N,K] are calibrated; `set` [N,K] and `abstain` [N] only if the model has a calibration; `features`
    [N,d]; `distances` [N,K] to the merged prototypes only if it has prototypes.
    """

    def __init__(self, model: Model, options: AnswerOptions) -> None:
        super().__init__()
        self.spec, self.trust, self.options = model.spec, model.trust, options
        self.squared = Squared(model.spec.size, model.pixels.side, model.spec.square)
        self.backbone, self.head = model.net.backbone, plain_head(model.net)
        self.prototypes = {name: tensor.cpu() for name, tensor in (model.prototypes or {}).items()}
        sets = ("set", "abstain") if self.trust else ()
        self.names = ("probabilities", *sets, "features", *(("distances",) if self.prototypes else ()))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        x = ops.evaluation_view(self.squared(images), self.spec.size, self.spec.mean, self.spec.std)
        features = self.backbone(x)
        logits = self.head(features)
        found = {"features": features, "probabilities": probabilities(logits).float()}
        if self.trust:
            raw, options = probabilities(logits), self.options
            threshold = self.trust.threshold(options.risk)
            found["probabilities"] = probabilities(logits, self.trust.temperature).float()
            scores = 1 - raw if options.sets == "lac" else aps_scores(raw)
            found["set"] = up_to_quantile(scores, raw, self.trust.quantile(options.coverage, options.sets))
            found["abstain"] = raw.amax(1) < (2.0 if threshold is None else threshold)
        if self.prototypes:
            aligned = nn.functional.normalize(features, dim=1) - self.prototypes["center"]
            found["distances"] = ops.cosine_distance(aligned, self.prototypes["merged"])
        return tuple(found[name] for name in self.names)


def aps_scores(probs: Tensor) -> Tensor:
    """As `class_scores`, by comparison of all pairs: ONNX has no stable order. [N,K] -> [N,K]."""
    each, other = probs.unsqueeze(2), probs.unsqueeze(1)
    number = torch.arange(probs.shape[1])
    first = (other > each) | ((other == each) & (number <= number.unsqueeze(1)))
    return (first * other).sum(2)


def plain_head(net: Net) -> nn.Linear:
    """The weight-normed head as the linear layer that it computes."""
    weight = net.head.weight.detach()
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(net.head.bias.detach())
    return linear
