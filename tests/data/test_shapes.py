"""Sizes of images: the network that suits them, warnings about long ones, and how they become square."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
from PIL import Image
from trees import task_of

from proud.config import SQUARES
from proud.data.cache import map_domain
from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain
from proud.data.decode import PixelFormat, in_square
from proud.data.folder import scan_folder
from proud.data.shapes import cropped_away, native_side


def catalog_of(root: Path, *names: str) -> Catalog:
    return Catalog("site", root, {"north": DomainFiles("north", tuple(Entry(name, None) for name in names))})


def test_long_images_give_a_warning(tmp_path: Path) -> None:
    for name, size in {"long": (120, 40), "tall": (40, 120), "square": (60, 60)}.items():
        Image.new("RGB", size).save(tmp_path / f"{name}.png")
    (tmp_path / "torn.png").write_bytes(b"torn")

    def warning(*names: str) -> str:
        catalog = catalog_of(tmp_path, *(f"{name}.png" for name in names))
        return cropped_away(catalog, catalog.domains["north"])

    assert "The images of north have an aspect ratio of 3.0" in warning("long", "tall", "square", "torn")
    assert not warning("long", "square", "square") and not warning("torn") and not warning()
    arrays = array_domain("arrays", np.zeros((1, 10, 20, 3), np.uint8), [None])
    assert "aspect ratio of 2.0" in cropped_away(Catalog("arrays", None, {"arrays": arrays}), arrays)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    catalog = catalog_of(tmp_path, "pipe.png")
    assert not cropped_away(catalog, catalog.domains["north"]) and native_side(catalog, catalog.domains["north"]) == 224


def wide() -> Image.Image:
    """Red, green and blue thirds side by side, three times as wide as high."""
    pixels = np.zeros((20, 60, 3), np.uint8)
    for third in range(3):
        pixels[:, 20 * third : 20 * third + 20, third] = 200
    return Image.fromarray(pixels)


def test_an_image_becomes_square_in_three_ways() -> None:
    middle, pad, stretch = (np.asarray(in_square(wide(), PixelFormat(60, how))) for how in SQUARES)
    assert (middle[..., 1] > 190).mean() > 0.9  # green alone
    assert (pad[20:40] == np.asarray(wide())).all()
    assert (pad[:20] == 128).all() and (pad[40:] == 128).all()
    assert all((stretch[:, 20 * third + 2 : 20 * third + 18, third] == 200).all() for third in range(3))
    square = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    same = [np.asarray(in_square(square, PixelFormat(32, how))) for how in SQUARES]
    assert all((each == same[0]).all() for each in same)  # a square image stays as it is
    thin = np.asarray(in_square(wide().resize((1000, 1)), PixelFormat(16, "pad")))
    assert thin.shape == (16, 16, 3) and (thin != 128).any(2).sum() == 16


def test_only_the_centre_crop_gives_a_warning(tmp_path: Path) -> None:
    for domain in ("north", "south"):
        for label in ("a", "b"):
            (tmp_path / domain / label).mkdir(parents=True)
            for shade in range(3):
                Image.new("RGB", (90, 30), (60 * shade + 20, 50, 90)).save(tmp_path / domain / label / f"{shade}.png")
    for square in SQUARES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            task = task_of(scan_folder(tmp_path), labeled="north", seed=0, square=square)
        texts = [str(warning.message) for warning in caught]
        assert any("--square pad" in text for text in texts) == (square == "middle"), texts
        assert task.report["square"] == square


def test_each_way_has_a_cache_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    wide().save(tmp_path / "data" / "wide.png")
    catalog = catalog_of(tmp_path / "data", "wide.png")
    for square in (*SQUARES, *SQUARES):
        found = map_domain(catalog, catalog.domains["north"], PixelFormat(60, square), tmp_path / "cache")
        expected = np.asarray(in_square(wide(), PixelFormat(60, square))).transpose(2, 0, 1)
        np.testing.assert_array_equal(found.images[0].numpy(), expected)
