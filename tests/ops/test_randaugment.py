"""RandAugment against a float64 twin that loops over pixels, and where Pillow has the operation, against Pillow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

from proud.ops.randaugment import (
    RAND_AUGMENT_OPS,
    RAND_AUGMENT_UNIFORMS,
    affine_matrix,
    autocontrast,
    cutout,
    photometric,
    posterize,
    rand_augment,
    random_warp,
    smooth,
    solarize,
    warp,
)

SIDE = 9
GREY = (0.299, 0.587, 0.114)
GEOMETRIC = RAND_AUGMENT_OPS[1:6]
PHOTOMETRIC = RAND_AUGMENT_OPS[6:]


def random_images(n: int, seed: int = 0) -> Tensor:
    bytes_ = torch.randint(256, (n, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(seed))
    return bytes_.double() / 255


def uniforms(n: int, seed: int = 1) -> Tensor:
    return torch.rand(n, RAND_AUGMENT_UNIFORMS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- the twin


def source_point(name: str, magnitude: float, x: float, y: float) -> tuple[float, float]:
    """Where the pixel at (x, y) is read from; pixel centres at halves, origin at the top left corner."""
    amount, centre = 2 * magnitude - 1, SIDE / 2
    if name == "rotate":
        cos, sin = math.cos(math.radians(30 * amount)), math.sin(math.radians(30 * amount))
        dx, dy = x - centre, y - centre
        return centre + dx * cos - dy * sin, centre + dx * sin + dy * cos
    shifts = {
        "shear_x": (0.3 * amount * y, 0),
        "shear_y": (0, 0.3 * amount * x),
        "translate_x": (0.3 * amount * SIDE, 0),
        "translate_y": (0, 0.3 * amount * SIDE),
    }
    dx, dy = shifts.get(name, (0, 0))
    return x + dx, y + dy


def bilinear(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """The value at a point, with black pixels all around the image."""
    left, top = math.floor(x - 0.5), math.floor(y - 0.5)
    total = np.zeros(3)
    for i in (top, top + 1):
        for j in (left, left + 1):
            if 0 <= i < SIDE and 0 <= j < SIDE:
                total += image[:, i, j] * (1 - abs(y - 0.5 - i)) * (1 - abs(x - 0.5 - j))
    return total


def warped(image: np.ndarray, operations: list[tuple[str, float]]) -> np.ndarray:
    """Operations in the order given: the last one's output point goes back through all of them."""
    out = np.zeros_like(image)
    for i in range(SIDE):
        for j in range(SIDE):
            x, y = j + 0.5, i + 0.5
            for name, magnitude in reversed(operations):
                x, y = source_point(name, magnitude, x, y)
            out[:, i, j] = bilinear(image, x, y)
    return out


def smoothed(image: np.ndarray) -> np.ndarray:
    out = image.copy()
    for i in range(1, SIDE - 1):
        for j in range(1, SIDE - 1):
            out[:, i, j] = (image[:, i - 1 : i + 2, j - 1 : j + 2].sum((1, 2)) + 4 * image[:, i, j]) / 13
    return out


def recoloured(image: np.ndarray, name: str, magnitude: float) -> np.ndarray:
    keep = 0.05 + 0.9 * magnitude
    grey = sum(weight * channel for weight, channel in zip(GREY, image, strict=True))
    if name == "brightness":
        return keep * image
    if name == "contrast":
        return keep * image + (1 - keep) * grey.mean()
    if name == "colour":
        return keep * image + (1 - keep) * grey
    if name == "sharpness":
        return keep * image + (1 - keep) * smoothed(image)
    if name == "autocontrast":
        return np.stack([(channel - channel.min()) / (channel.max() - channel.min()) for channel in image])
    if name == "posterize":
        bits = min(8, 4 + int(5 * magnitude))
        return (np.round(255 * image).astype(int) & ~(2 ** (8 - bits) - 1)) / 255
    if name == "solarize":
        return np.where(image < magnitude, image, 1 - image)
    return image


def with_hole(image: np.ndarray, u_row: float, u_column: float) -> np.ndarray:
    out, half = image.copy(), SIDE // 2
    row, column = int(u_row * SIDE), int(u_column * SIDE)
    for i in range(row - half // 2, row - half // 2 + half):
        for j in range(column - half // 2, column - half // 2 + half):
            if 0 <= i < SIDE and 0 <= j < SIDE:
                out[:, i, j] = 0.5
    return out


# ---- each operation


def drawn(name: str, n: int) -> Tensor:
    return torch.full((n,), RAND_AUGMENT_OPS.index(name))


@pytest.mark.parametrize("name", ("identity", *GEOMETRIC))
def test_geometric_operation(name: str) -> None:
    x, magnitude = random_images(4), torch.tensor([0.0, 0.3, 0.8, 1.0], dtype=torch.float64)
    got = warp(x, affine_matrix(drawn(name, 4), magnitude))
    for n in range(4):
        np.testing.assert_allclose(got[n], warped(x[n].numpy(), [(name, float(magnitude[n]))]), atol=1e-12)


@pytest.mark.parametrize("name", ("identity", "rotate", *PHOTOMETRIC))
def test_photometric_operation(name: str) -> None:
    x, magnitude = random_images(4), torch.tensor([0.0, 0.3, 0.8, 1.0], dtype=torch.float64)
    got = photometric(x, drawn(name, 4), magnitude)
    for n in range(4):
        np.testing.assert_allclose(got[n], recoloured(x[n].numpy(), name, float(magnitude[n])), atol=1e-12)


def at_border(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """The value at a point of an image that goes on as at its edge."""
    x, y = min(max(x - 0.5, 0), SIDE - 1), min(max(y - 0.5, 0), SIDE - 1)
    left, top = math.floor(x), math.floor(y)
    total = np.zeros(3)
    for i in (top, top + 1):
        for j in (left, left + 1):
            weight = (1 - abs(y - i)) * (1 - abs(x - j))
            total += weight * image[:, min(i, SIDE - 1), min(j, SIDE - 1)]
    return total


def test_random_warp() -> None:
    """A point of the output is shifted, sheared, turned and zoomed about the centre: there the value is read."""
    x, uniform = random_images(4), torch.rand(4, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    got = random_warp(x, uniform, 0.8)
    for n in range(4):
        turn, zoom, shear_x, shear_y, shift_x, shift_y = 0.8 * (2 * uniform[n].numpy() - 1)
        turned = np.array(
            [
                [np.cos(turn * np.pi / 6), -np.sin(turn * np.pi / 6)],
                [np.sin(turn * np.pi / 6), np.cos(turn * np.pi / 6)],
            ]
        )
        matrix = 1.5**zoom * turned @ np.array([[1, 0.3 * shear_x], [0.3 * shear_y, 1]])
        for i in range(SIDE):
            for j in range(SIDE):
                out = np.array([j + 0.5, i + 0.5]) / SIDE * 2 - 1
                px, py = (matrix @ out + np.array([shift_x, shift_y]) / 4 + 1) / 2 * SIDE
                np.testing.assert_allclose(got[n, :, i, j], at_border(x[n].numpy(), px, py), atol=1e-12)


def test_a_constant_channel_keeps_its_value_under_autocontrast() -> None:
    assert torch.equal(autocontrast(torch.full((1, 3, 4, 4), 0.3)), torch.full((1, 3, 4, 4), 0.3))


def test_cutout_is_cut_off_at_the_edges() -> None:
    x = torch.zeros(2, 3, SIDE, SIDE)
    got = cutout(x, torch.tensor([0, 4]), torch.tensor([8, 4]), 4)
    assert got[0, 0].sum() == 0.5 * 2 * 3 and got[1, 0].sum() == 0.5 * 16
    assert got[0, 0, 0, 8] == 0.5 and got[0, 0, 2, 8] == 0


# ---- Pillow, whose bytes are rounded


def pillow(x: Tensor) -> Image.Image:
    return Image.fromarray((255 * x).round().byte().permute(1, 2, 0).numpy())


def bytes_of(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1) / 255


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_like_pillow(level: float) -> None:
    x = random_images(1, seed=3)
    image, factor, magnitude = pillow(x[0]), 0.05 + 0.9 * level, torch.tensor([level], dtype=torch.float64)
    blends = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "colour": ImageEnhance.Color,
        "sharpness": ImageEnhance.Sharpness,
    }
    for name, enhance in blends.items():
        got = photometric(x, drawn(name, 1), magnitude)[0]
        np.testing.assert_allclose(got, bytes_of(enhance(image).enhance(factor)), atol=2.1 / 255, err_msg=name)
    np.testing.assert_allclose(smooth(x)[0], bytes_of(image.filter(ImageFilter.SMOOTH)), atol=1.1 / 255)
    np.testing.assert_allclose(autocontrast(x)[0], bytes_of(ImageOps.autocontrast(image)), atol=1.1 / 255)
    bits = 4 + int(5 * level)
    fewer = bytes_of(ImageOps.posterize(image, bits))
    np.testing.assert_allclose(posterize(x, torch.tensor([bits]))[0], fewer, atol=1e-9)
    threshold = torch.tensor([round(256 * level) / 255], dtype=torch.float64)
    inverted = bytes_of(ImageOps.solarize(image, round(256 * level)))
    np.testing.assert_allclose(solarize(x, threshold)[0], inverted, atol=1e-9)


# ---- all of it


def test_rand_augment_equals_the_twin() -> None:
    n = 60
    x, uniform = random_images(n), uniforms(n)
    got, seen = rand_augment(x, uniform), set()
    for image, u, result in zip(x.numpy(), uniform.tolist(), got.numpy(), strict=True):
        operations = [(RAND_AUGMENT_OPS[int(13 * u[k])], u[k + 1]) for k in (0, 2)]
        seen |= {name for name, _ in operations}
        expected = warped(image, operations)
        for name, magnitude in operations:
            expected = recoloured(expected, name, magnitude)
        np.testing.assert_allclose(result, with_hole(expected, u[4], u[5]), atol=1e-9)
    assert seen == set(RAND_AUGMENT_OPS)


def test_rand_augment_stays_in_range_at_the_ends_and_touches_no_neighbour() -> None:
    x, uniform = random_images(8).float(), uniforms(8).float()
    uniform[0], uniform[1] = 0, 1
    got = rand_augment(x, uniform)
    assert got.dtype == torch.float32 and got.shape == x.shape
    assert got.min() >= -1e-6 and got.max() <= 1 + 1e-6
    torch.testing.assert_close(rand_augment(x[3:5], uniform[3:5]), got[3:5])


def test_rand_augment_traces_into_one_graph() -> None:
    x, uniform = random_images(4).float(), uniforms(4).float()
    traced = torch.compile(rand_augment, fullgraph=True, backend="eager", dynamic=False)
    torch.testing.assert_close(traced(x, uniform), rand_augment(x, uniform))
