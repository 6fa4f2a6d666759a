"""Pillow's bilinear resampling of bytes as tensor operations, so that an exported program contains it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FIXED_POINT = 2**22  # Pillow rounds weights to multiples of 1/2²²


class Span(NamedTuple):
    """`extent` of `length` pixels, from `begin` on, become `target`. All are float64 scalars."""

    length: Tensor
    begin: Tensor
    extent: Tensor
    target: Tensor


def bilinear_taps(places: Tensor, span: Span, taps: int | torch.SymInt) -> tuple[Tensor, Tensor]:
    """The pixels that make the output pixels at `places`, and their weights in fixed point. [P] -> [P,taps], [P,taps].

    The weights are a triangle as wide as two output pixels, or two input pixels if these are larger; pixels beyond the
    extent count too.
    """
    scale = span.extent / span.target
    support = scale.clamp_min(1.0)
    centres = span.begin + (places + 0.5) * scale
    first = (centres - support + 0.5).floor().clamp_min(0.0).unsqueeze(1)
    last = torch.minimum((centres + support + 0.5).floor(), span.length).unsqueeze(1)
    pixels = first + torch.arange(taps, dtype=torch.float64, device=places.device)
    weights = (1 - ((pixels - centres.unsqueeze(1) + 0.5) * (1 / support)).abs()).clamp_min(0.0)
    weights = torch.where(pixels < last, weights, torch.zeros_like(weights))
    weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-9)  # outside of the image there are none
    return torch.minimum(pixels, span.length - 1).long(), (weights * FIXED_POINT + 0.5).floor().int()


def resample(images: Tensor, pixels: Tensor, weights: Tensor) -> Tensor:
    """Along the last axis, rounded to bytes. [N,C,H,W] uint8, [P,taps], [P,taps] -> [N,C,H,P] uint8."""
    picked = images.index_select(3, pixels.flatten()).unflatten(3, pixels.shape)
    total = (picked.int() * weights).sum(4, dtype=torch.int32)
    return ((total.double() + FIXED_POINT // 2) / FIXED_POINT).floor().to(torch.uint8)
