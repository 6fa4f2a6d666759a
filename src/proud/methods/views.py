"""Augmented views of stored images, and their NoiseMix copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.lazy import ops, torch
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from types import SimpleNamespace

    from torch import Tensor

    from proud.methods.base import MethodConfig
    from proud.methods.context import Context
    from proud.ops import AugmentDraw

SIMPLE_UNIFORMS = 9  # random numbers per image of the simple augmentation


class Views:
    uniforms = SIMPLE_UNIFORMS
    """random numbers per image that `training` needs"""

    def __init__(self, context: Context, config: MethodConfig, numbers: SimpleNamespace) -> None:
        self.size, self.mean, self.std = context.size, context.mean, context.std
        self.coarse = context.precision == "bf16"
        self.batch_size, self.flip_p, self.turn = config.batch_size, 0.5 if config.flip else 0.0, config.turn
        self.jitter = torch.stack([torch.full_like(numbers.hue, 0.4)] * 3 + [numbers.hue])
        self.gray_p = numbers.gray

    def simple(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Translation, flip, quarter turn, colour jitter and grayscale of stored uint8 images, normalised."""
        draw = self._draw(images, uniform)
        return self._turned(ops.augment(images, draw, self.size, self.mean, self.std), uniform)

    def training(self, images: Tensor, uniform: Tensor) -> Tensor:
        """The augmentation of images that are learned from."""
        return self.simple(images, uniform)

    def shifted(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Only the translation, the flip and the turn of the simple augmentation, in [0, 1]."""
        draw = self._draw(images, uniform)
        return self._turned(ops.to_unit(ops.flip(ops.crop(images, draw.top, draw.left, self.size), draw.flip)), uniform)

    def _draw(self, images: Tensor, uniform: Tensor) -> AugmentDraw:
        margin = images.shape[-1] - self.size
        return ops.augment_draw(uniform, margin, flip_p=self.flip_p, jitter=self.jitter, gray_p=self.gray_p)

    def _turned(self, x: Tensor, uniform: Tensor) -> Tensor:
        """By the number that also decides on the flip: together they give all eight positions equally often."""
        return ops.quarter_turns(x, ops.turns_draw(uniform[:, 3])) if self.turn else x

    def evaluation(self, images: Tensor) -> Tensor:
        return ops.evaluation_view(images, self.size, self.mean, self.std)

    def noise_copies(self, x: Tensor, draws: Draws) -> Tensor:
        """NoiseMix copies of normalised images, with the draws that `noise_draws` declares."""
        draw = ops.noise_mix_draw(
            draws["noise_sample"].flatten(1), draws["noise_layer"], draws["noise_weights"], draws["noise"].flatten(1, 2)
        )
        return ops.noise_mix(x, draw, self.mean, self.std, coarse=self.coarse)

    def noise_draws(self, groups: int) -> dict[str, Draw]:
        """Draws for NoiseMix (P = 3, kernels up to 15) on `groups` × batch_size images."""
        batch, size = self.batch_size, self.size
        return {
            "noise_sample": Draw((2, groups, batch), sample_dim=2),
            "noise_layer": Draw((3, 3)),
            "noise_weights": Draw((3, 3, 3, 15, 15)),
            "noise": Draw((3, groups, batch, 3, size, size), "normal", sample_dim=2),
        }
