"""The built-in data set: digits in four domains, made from what the dependencies ship, nothing to download.

pen      scikit-learn's real handwritten digits, dark on clean paper
texture  other handwritten digits, coloured, over wavy and noisy textures
print    matplotlib's fonts, dark on light
street   other fonts on coloured plates: perspective, neighbours, light, blur and sensor noise

No handwritten sample and no font face appears in two domains. Fixed seeds: the same pixels on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from proud.data.catalog import Catalog, array_domain

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]
Subject = TypeVar("Subject")

SIDE = 32
CLASSES = 10
PER_CLASS = 40
DOMAINS = ("pen", "texture", "print", "street")
CANVAS = 96
"""Printed digits are drawn three times as large and scaled down."""

PRINT_FACES = (
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "DejaVuSansMono",
    "DejaVuSansMono-Oblique",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmr10",
    "cmss10",
)
STREET_FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono-Bold",
    "DejaVuSerif-Bold",
    "STIXGeneralBol",
    "cmb10",
    "cmtt10",
)


def embedded_catalog() -> Catalog:
    domains = {
        name: array_domain(name, images, [str(y) for y in labels]) for name, (images, labels) in load_embedded().items()
    }
    return Catalog("embedded", None, domains)


@lru_cache(maxsize=1)
def load_embedded() -> dict[str, tuple[Pixels, NDArray[np.int64]]]:
    """Domain name → images [400,32,32,3] uint8 and labels [400] int64, 40 of each digit. Not to be written to."""
    pen_ink, texture_ink = _handwritten()
    domains = {
        "pen": _draw(1, pen_ink, _on_paper),
        "texture": _draw(2, texture_ink, _on_texture),
        "print": _draw(3, _printed(PRINT_FACES), _printed_page),
        "street": _draw(4, _printed(STREET_FACES), _street_plate),
    }
    labels = np.repeat(np.arange(CLASSES), PER_CLASS)
    labels.setflags(write=False)
    for images in domains.values():
        images.setflags(write=False)
    return {name: (domains[name], labels) for name in DOMAINS}


# --- what is drawn -------------------------------------------------------------------------------------------------


def _handwritten() -> tuple[list[Floats], list[Floats]]:
    """Two disjoint sets of 8×8 digits, scaled to [0,1], in the order of the labels."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    samples = load_digits()
    random = Generator(PCG64(0))
    first: list[Floats] = []
    second: list[Floats] = []
    for digit in range(CLASSES):
        rows = random.permutation(np.flatnonzero(samples.target == digit))[: 2 * PER_CLASS]
        pictures = list(samples.images[rows] / 16.0)
        first += pictures[:PER_CLASS]
        second += pictures[PER_CLASS:]
    return first, second


def _printed(faces: tuple[str, ...]) -> list[tuple[str, str]]:
    """(digit, font face) in the order of the labels; every face appears with every digit."""
    return [(str(digit), faces[place % len(faces)]) for digit in range(CLASSES) for place in range(PER_CLASS)]


@lru_cache(maxsize=64)
def _font(face: str, height: int) -> ImageFont.FreeTypeFont:
    import matplotlib  # noqa: PLC0415

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    return ImageFont.truetype(str(path), height, layout_engine=ImageFont.Layout.BASIC)


# --- how it is drawn -----------------------------------------------------------------------------------------------


def _draw(seed: int, subjects: list[Subject], picture: Callable[[Subject, Generator], Floats]) -> Pixels:
    random = Generator(PCG64(seed))
    images = [picture(subject, random) for subject in subjects]
    return np.rint(np.stack(images).clip(0, 1) * 255).astype(np.uint8)


def _on_paper(digit: Floats, random: Generator) -> Floats:
    ink = _pen_stroke(digit, random)
    paper = random.uniform(0.90, 0.98) - random.uniform(0, 0.03, 3)
    colour = random.uniform(0.05, 0.22) + random.uniform(0, 0.12, 3)
    return _paint(ink, colour, np.broadcast_to(paper, (SIDE, SIDE, 3)))


def _on_texture(digit: Floats, random: Generator) -> Floats:
    ink = _pen_stroke(digit, random)
    texture = _texture(random)
    # As far from the texture's mean as a colour can be, give or take: readable, in either polarity.
    colour = np.where(texture.mean((0, 1)) > 0.5, 0.0, 1.0) * 0.7 + random.uniform(0, 0.3, 3)
    inverted = np.abs(texture - colour)
    strength = random.uniform(0.65, 0.95)
    return _paint(ink, strength * colour + (1 - strength) * inverted, texture)


def _printed_page(subject: tuple[str, str], random: Generator) -> Floats:
    height = int(random.integers(66, 92))
    text = _type(subject, height)
    shift = random.integers(-9, 10, 2)
    ink = _to_floats(_shrink(_turn(text, random.uniform(-9, 9), shift)))
    paper = random.uniform(0.85, 1.0) - random.uniform(0, 0.06, 3)
    colour = random.uniform(0.0, 0.30, 3)
    return _paint(ink, colour, np.broadcast_to(paper, (SIDE, SIDE, 3)))


def _street_plate(subject: tuple[str, str], random: Generator) -> Floats:
    height = int(random.integers(62, 86))
    text = _type(subject, height, neighbours=random.integers(0, CLASSES, 2), gap=int(random.integers(0, 10)))
    text = _turn(_perspective(text, random), random.uniform(-12, 12), random.integers(-7, 8, 2))
    text = text.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 3.2)))
    ink = _to_floats(_shrink(text))
    dark, light = random.uniform(0.02, 0.40, 3), random.uniform(0.60, 1.0, 3)
    plate, colour = (dark, light) if random.random() < 0.75 else (light, dark)
    scene = _paint(ink, colour, np.broadcast_to(plate, (SIDE, SIDE, 3)))
    lit = scene * (1 + _slope(random, 0.35))[..., None]
    return lit + random.normal(0, random.uniform(0.01, 0.05), scene.shape)


def _pen_stroke(digit: Floats, random: Generator) -> Floats:
    """An 8×8 sample as a smooth stroke in [0,1], a little turned and moved."""
    side = int(random.integers(25, 31))
    large = Image.fromarray(digit.astype(np.float32)).resize((side, side), Image.Resampling.BICUBIC)
    canvas = Image.new("F", (SIDE, SIDE))
    canvas.paste(large, tuple((SIDE - side) // 2 + random.integers(-1, 2, 2)))
    turned = canvas.rotate(random.uniform(-8, 8), Image.Resampling.BILINEAR)
    return _smooth_step(np.asarray(turned, dtype=np.float64), 0.25, 0.75)


def _texture(random: Generator) -> Floats:
    """Waves of three directions in colour, with fine grain."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    waves = np.zeros((SIDE, SIDE, 3))
    for _ in range(3):
        angle, frequency = random.uniform(0, np.pi), random.uniform(1.0, 7.0)
        bend = random.uniform(0, 1.2) * np.sin(
            2 * np.pi * (y * np.cos(angle) - x * np.sin(angle)) * random.uniform(0.5, 2)
        )
        phase = 2 * np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle)) + bend + random.uniform(0, 2 * np.pi)
        waves += np.sin(phase)[..., None] * random.uniform(-0.16, 0.16, 3)
    base = random.uniform(0.15, 0.85, 3)
    return (base + waves + random.normal(0, random.uniform(0.02, 0.08), waves.shape)).clip(0, 1)


def _type(
    subject: tuple[str, str], height: int, neighbours: NDArray[np.int64] | None = None, gap: int = 0
) -> Image.Image:
    """White on black, the digit in the middle; with `neighbours`, a digit on either side, cut by the edge."""
    digit, face = subject
    canvas = Image.new("L", (CANVAS, CANVAS))
    draw = ImageDraw.Draw(canvas)
    font = _font(face, height)
    left, top, right, bottom = font.getbbox(digit)
    x, y = (CANVAS - left - right) / 2, (CANVAS - top - bottom) / 2
    draw.text((x, y), digit, fill=255, font=font)
    if neighbours is not None:
        width = right - left
        for side, neighbour in zip((-1, 1), neighbours, strict=True):
            draw.text((x + side * (width + gap + height // 12), y), str(neighbour), fill=255, font=font)
    return canvas


def _turn(image: Image.Image, degrees: float, shift: NDArray[np.int64]) -> Image.Image:
    return image.rotate(degrees, Image.Resampling.BILINEAR, translate=(int(shift[0]), int(shift[1])))


def _perspective(image: Image.Image, random: Generator) -> Image.Image:
    """Each corner moves a little, as if the plate were seen from the side."""
    corners = np.array([(0, 0), (CANVAS, 0), (CANVAS, CANVAS), (0, CANVAS)], dtype=np.float64)
    moved = corners + random.uniform(-13, 13, (4, 2))
    equations, values = [], []
    for (x, y), (u, v) in zip(corners, moved, strict=True):
        equations += [(x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y)]
        values += [u, v]
    coefficients = np.linalg.solve(np.array(equations), np.array(values))
    return image.transform(image.size, Image.Transform.PERSPECTIVE, coefficients.tolist(), Image.Resampling.BILINEAR)


def _slope(random: Generator, strength: float) -> Floats:
    """Light that changes across the image, in [-strength, strength]."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) - 0.5
    across, down = random.uniform(-strength, strength, 2)
    return across * x + down * y


def _shrink(image: Image.Image) -> Image.Image:
    return image.resize((SIDE, SIDE), Image.Resampling.BOX)


def _to_floats(image: Image.Image) -> Floats:
    return np.asarray(image, dtype=np.float64) / 255


def _smooth_step(values: Floats, low: float, high: float) -> Floats:
    t = ((values - low) / (high - low)).clip(0, 1)
    return t * t * (3 - 2 * t)


def _paint(ink: Floats, colour: Floats, ground: Floats) -> Floats:
    """[H,W] ink of one colour (or a colour for each pixel) over the ground."""
    return ground + ink[..., None] * (colour - ground)
