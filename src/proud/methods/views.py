"""Augmented views of stored images, and their NoiseMix copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.lazy import ops
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context

SIMPLE_UNIFORMS = 9  # random numbers per image of the simple augmentation


class Views:
    uniforms = SIMPLE_UNIFORMS
    """random numbers per image that `training` needs"""

    def __init__(self, context: Context, batch_size: int, flip: bool) -> None:
        self.size, self.mean, self.std = context.size, context.mean, context.std
        self.coarse = context.precision == "bf16"
        self.batch_size, self.flip_p = batch_size, 0.5 if flip else 0.0

    def simple(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Translation, flip, colour jitter and grayscale of stored uint8 images, normalised."""
        draw = ops.augment_draw(uniform, images.shape[-1] - self.size, flip_p=self.flip_p)
        return ops.augment(images, draw, self.size, self.mean, self.std)

    def training(self, images: Tensor, uniform: Tensor) -> Tensor:
        """The augmentation of images that are learned from."""
        return self.simple(images, uniform)

    def shifted(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Only the translation and the flip of the simple augmentation, in [0, 1]."""
        draw = ops.augment_draw(uniform, images.shape[-1] - self.size, flip_p=self.flip_p)
        return ops.to_unit(ops.flip(ops.crop(images, draw.top, draw.left, self.size), draw.flip))

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
