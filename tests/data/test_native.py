"""What is told of pictures by their sizes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from proud.data.catalog import Catalog, DomainFiles, Entry, array_domain
from proud.data.native import cut_off, native_side


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
