"""What is told of pictures by their sizes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from proud.config import SQUARES
from proud.data.task import assemble
from proud.data.cache import map_domain
from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain, scan_folder
from proud.data.native import cut_off, native_side
from proud.data.decode import in_square


def catalog_of(root: Path, *names: str) -> Catalog:
    return Catalog("site", root, {"north": DomainFiles("north", tuple(Entry(name, None) for name in names))})


def test_pictures_that_lose_their_ends_are_told(tmp_path: Path) -> None:
    for name, size in {"long": (120, 40), "tall": (40, 120), "square": (60, 60)}.items():
        Image.new("RGB", size).save(tmp_path / f"{name}.png")
    (tmp_path / "torn.png").write_bytes(b"torn")

    def told(*names: str) -> str:
        catalog = catalog_of(tmp_path, *(f"{name}.png" for name in names))
        return cut_off(catalog, catalog.domains["north"])

    assert "The images of north are 3.0 times as long one way" in told("long", "tall", "square", "torn")
    assert not told("long", "square", "square") and not told("torn") and not told()
    arrays = array_domain("arrays", np.zeros((1, 10, 20, 3), np.uint8), [None])
    assert "2.0 times" in cut_off(Catalog("arrays", None, {"arrays": arrays}), arrays)


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    catalog = catalog_of(tmp_path, "pipe.png")
    assert not cut_off(catalog, catalog.domains["north"]) and native_side(catalog, "north") == 224


def wide() -> Image.Image:
    """Red, green and blue thirds side by side, three times as wide as high."""
    pixels = np.zeros((20, 60, 3), np.uint8)
    for third in range(3):
        pixels[:, 20 * third : 20 * third + 20, third] = 200
    return Image.fromarray(pixels)


def test_a_picture_becomes_a_square_in_three_ways() -> None:
    middle, pad, stretch = (np.asarray(in_square(wide(), 60, how)) for how in SQUARES)
    assert (middle[..., 1] > 190).mean() > 0.9  # green alone
    assert (pad[20:40] == np.asarray(wide())).all()
    assert (pad[:20] == 128).all() and (pad[40:] == 128).all()
    assert all((stretch[:, 20 * third + 2 : 20 * third + 18, third] == 200).all() for third in range(3))
    square = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    same = [np.asarray(in_square(square, 32, how)) for how in SQUARES]
    assert all((each == same[0]).all() for each in same)  # a square picture is what it is
    thin = np.asarray(in_square(wide().resize((1000, 1)), 16, "pad"))
    assert thin.shape == (16, 16, 3) and (thin != 128).any(2).sum() == 16


def test_pictures_that_keep_their_ends_are_not_told_of(tmp_path: Path) -> None:
    for domain in ("north", "south"):
        for label in ("a", "b"):
            (tmp_path / domain / label).mkdir(parents=True)
            for shade in range(3):
                Image.new("RGB", (90, 30), (60 * shade + 20, 50, 90)).save(tmp_path / domain / label / f"{shade}.png")
    for square in SQUARES:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            task = assemble(scan_folder(tmp_path), labeled="north", test=None, size=16, seed=0, square=square)
        said = [str(warning.message) for warning in told]
        assert any("--square pad" in text for text in said) == (square == "middle"), said
        assert task.report["square"] == square


def test_a_cache_holds_one_kind_of_squares(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    wide().save(tmp_path / "data" / "wide.png")
    catalog = catalog_of(tmp_path / "data", "wide.png")
    for square in (*SQUARES, *SQUARES):
        found = map_domain(catalog, catalog.domains["north"], 60, tmp_path / "cache", square=square)
        expected = np.asarray(in_square(wide(), 60, square)).transpose(2, 0, 1)
        np.testing.assert_array_equal(found.images[0].numpy(), expected)
