"""Crops, flips and colours against the oracle."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oracle
from proud import ops

SEEDS = st.integers(0, 2**31 - 1)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def random_images(seed: int, n: int, side: int) -> Tensor:
    return torch.randint(256, (n, 3, side, side), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def uniform(seed: int, n: int) -> Tensor:
    return torch.rand(n, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numpy_draw(draw: ops.AugmentDraw) -> dict[str, np.ndarray]:
    return {field.name: getattr(draw, field.name).numpy() for field in fields(draw)}


@given(SEEDS, st.integers(1, 10), st.integers(0, 5), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_draw_equals_the_oracle(seed: int, n: int, margin: int, translate: float, flip: float, gray: float) -> None:
    u, jitter = uniform(seed, n), (0.4, 0.3, 0.2, 0.1)
    draw = ops.augment_draw(u, margin, translate_p=translate, flip_p=flip, jitter=jitter, gray_p=gray)
    for name, values in oracle.augment_draw(u.numpy(), margin, translate, flip, jitter, gray).items():
        np.testing.assert_allclose(getattr(draw, name), values, rtol=1e-12, atol=1e-15)
    assert draw.top.dtype == draw.left.dtype == torch.int64 and draw.flip.dtype == draw.gray.dtype == torch.bool


def test_draw_at_the_ends_of_the_uniform_numbers() -> None:
    ones = torch.ones(1, 9, dtype=torch.float64)
    centred = ops.augment_draw(ones, 5)
    assert (int(centred.top), int(centred.left), bool(centred.flip), bool(centred.gray)) == (2, 2, False, False)
    ones[0, 0] = 0
    moved = ops.augment_draw(ones, 5, flip_p=0.0)
    assert (int(moved.top), int(moved.left)) == (5, 5)
    assert not ops.augment_draw(0 * ones, 5, flip_p=0.0).flip
    assert ops.augment_draw(0 * ones, 5).hue == -0.1 and moved.hue == 0.1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_crop_equals_the_oracle(dtype: torch.dtype) -> None:
    images, g = random_images(0, 5, 9).to(dtype), torch.Generator().manual_seed(1)
    top, left = torch.randint(4, (2, 5), generator=g)
    got = ops.crop(images, top, left, 6)
    assert got.dtype == dtype
    for n in range(5):
        np.testing.assert_array_equal(got[n], oracle.crop(images[n].numpy(), int(top[n]), int(left[n]), 6))


@pytest.mark.parametrize(("side", "size", "offset"), [(9, 6, 1), (8, 6, 1), (6, 6, 0)])
def test_center_crop(side: int, size: int, offset: int) -> None:
    images = random_images(2, 2, side)
    middle = torch.full((2,), offset)
    torch.testing.assert_close(ops.center_crop(images, size), ops.crop(images, middle, middle, size))


def test_flip_and_grayscale_change_only_masked_images() -> None:
    x, mask = torch.rand(3, 3, 4, 5, generator=torch.Generator().manual_seed(3)).double(), torch.tensor([1, 0, 1]) > 0
    flipped, grey = ops.flip(x, mask), ops.grayscale(x, mask)
    for n in (0, 2):
        np.testing.assert_array_equal(flipped[n], oracle.flip(x[n].numpy()))
        np.testing.assert_allclose(grey[n], oracle.grayscale(x[n].numpy()), rtol=1e-12)
    assert flipped[1].equal(x[1]) and grey[1].equal(x[1])


@given(SEEDS, st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.floats(-0.5, 0.5))
def test_color_jitter_equals_the_oracle(seed: int, b: float, c: float, s: float, h: float) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(2, 3, 3, 4, generator=g, dtype=torch.float64)
    factors = torch.tensor([[b, c, s, h], [1.0, 1.0, 1.0, 0.0]], dtype=torch.float64).unbind(-1)
    got = ops.color_jitter(x, *factors)
    np.testing.assert_allclose(got[0], oracle.color_jitter(x[0].numpy(), b, c, s, h), atol=1e-9)
    np.testing.assert_allclose(got[1], x[1], atol=1e-12)


def test_color_jitter_known_effects() -> None:
    def jitter(x: Tensor, b: float = 1, c: float = 1, s: float = 1, h: float = 0) -> Tensor:
        return ops.color_jitter(x, *(torch.tensor([v], dtype=torch.float64) for v in (b, c, s, h)))

    x = 0.4 * torch.rand(1, 3, 5, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 0.2
    torch.testing.assert_close(jitter(x, b=1.5), 1.5 * x)
    torch.testing.assert_close(jitter(x, s=0), ops.grayscale(x, torch.tensor([True])))
    assert jitter(x, c=0).std() < 1e-12, "no contrast leaves one grey"
    torch.testing.assert_close(jitter(jitter(x, h=0.03), h=-0.03), x)
    red = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)[None, :, None, None]
    turned = jitter(red, h=0.1).flatten()
    assert turned[1] > turned[2] + 0.1, "a positive hue turns red towards yellow, as in HSV"
    assert jitter(x, b=9).max() == 1 and jitter(x, c=50).min() == 0


def test_normalize_and_to_unit() -> None:
    images = random_images(5, 2, 4)
    unit = ops.to_unit(images, torch.float64)
    assert ops.to_unit(images).dtype == torch.float32 and unit.dtype == torch.float64
    np.testing.assert_allclose(unit, images.numpy() / 255, rtol=1e-15)
    expected = np.stack([oracle.normalize(image, MEAN, STD) for image in unit.numpy()])
    np.testing.assert_allclose(ops.normalize(unit, MEAN, STD), expected, rtol=1e-12)
    tensors = (torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64))
    np.testing.assert_allclose(ops.normalize(unit, *tensors), expected, rtol=1e-12)


@given(SEEDS, st.integers(1, 4), st.integers(0, 4))
def test_augment_equals_the_oracle(seed: int, n: int, margin: int) -> None:
    images = random_images(seed, n, 5 + margin)
    draw = ops.augment_draw(uniform(seed, n), margin, gray_p=0.5, jitter=(0.8, 0.8, 0.8, 0.4))
    got = ops.augment(images, draw, 5, MEAN, STD, torch.float64)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got, oracle.augment(images.numpy(), numpy_draw(draw), 5, MEAN, STD), atol=1e-9)


def test_augment_is_the_composition_of_its_parts() -> None:
    images, draw = random_images(6, 16, 36), ops.augment_draw(uniform(7, 16).float(), 4)
    x = ops.flip(ops.to_unit(ops.crop(images, draw.top, draw.left, 32)), draw.flip)
    x = ops.color_jitter(x, draw.brightness, draw.contrast, draw.saturation, draw.hue)
    x = ops.normalize(ops.grayscale(x, draw.gray), MEAN, STD)
    got = ops.augment(images, draw, 32, MEAN, STD)
    assert got.dtype == torch.float32 and got.shape == (16, 3, 32, 32)
    torch.testing.assert_close(got, x, rtol=0, atol=1e-5)
    half = ops.augment(images, draw, 32, MEAN, STD, torch.bfloat16)
    torch.testing.assert_close(half, got.bfloat16(), rtol=0, atol=0)


def test_a_sliced_draw_augments_its_rows_alike() -> None:
    images, draw, rows = random_images(8, 7, 12), ops.augment_draw(uniform(9, 7), 4), slice(3, 6)
    whole = ops.augment(images, draw, 8, MEAN, STD)
    torch.testing.assert_close(ops.augment(images[rows], draw.slice(rows), 8, MEAN, STD), whole[rows])


def test_evaluation_view_is_the_centre_normalised() -> None:
    images = random_images(10, 2, 9)
    got = ops.evaluation_view(images, 6, MEAN, STD)
    assert got.dtype == torch.float32
    for n in range(2):
        expected = oracle.normalize(oracle.crop(images[n].numpy() / 255, 1, 1, 6), MEAN, STD)
        np.testing.assert_allclose(got[n], expected, atol=1e-5)


def test_quarter_turns_equal_the_oracle() -> None:
    images, turns = random_images(3, 8, 5).double(), torch.arange(8) % 4
    for image, turned, count in zip(images, ops.quarter_turns(images, turns), turns.tolist(), strict=True):
        np.testing.assert_array_equal(turned, oracle.quarter_turns(image.numpy(), count))
        np.testing.assert_array_equal(turned, np.rot90(image.numpy(), count, (1, 2)))


def test_flips_and_turns_give_all_eight_positions_equally_often() -> None:
    u = torch.arange(800) / 800
    positions = 4 * (u < 0.5) + ops.turns_draw(u)
    assert positions.bincount().tolist() == [100] * 8
    assert ops.turns_draw(torch.ones(1)) == 3
