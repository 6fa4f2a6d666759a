"""Thumbnails are made once, re-encoded and bounded in number."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proud.data.decode import content_hash
from proud.web import thumbnails
from proud.web.thumbnails import Changed, Thumbnails, media_type, picture


def test_each_is_made_once(tmp_path: Path) -> None:
    made: list[str] = []

    def make() -> bytes:
        made.append("x")
        return b"image"

    store = Thumbnails(tmp_path)
    assert store.get("a", make) == store.get("a", make) == b"image"
    store.close()
    assert Thumbnails(tmp_path).get("a", make) == b"image"
    assert made == ["x"]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thumbnails, "CHECKED_EVERY", 10)
    store = Thumbnails(tmp_path, most=1000)
    for number in range(100):
        store.get(str(number), lambda: b"x" * 50)
    left = [int(row[0]) for row in store.database.execute("SELECT content FROM thumbnails")]
    assert len(left) <= 20
    assert max(left) == 99
    assert min(left) >= 80


def test_a_damaged_store_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thumbnails.sqlite").write_bytes(b"not a database" * 100)
    assert Thumbnails(tmp_path).get("a", lambda: b"new") == b"new"


def test_large_images_become_small_and_lose_what_is_not_pixels(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90°
    exif[0x010E] = "a secret"
    Image.new("RGB", (900, 600), "blue").save(path, exif=exif)
    found = picture(path, content_hash(path))
    assert media_type(found) == "image/jpeg"
    image = Image.open(io.BytesIO(found))
    assert image.size == (128, 192)
    assert b"secret" not in found


def test_deep_grey_transparent_and_array_images(tmp_path: Path) -> None:
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((8, 8), 65535, np.uint16)).save(deep)
    clear = tmp_path / "clear.png"
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(clear)
    for path in (deep, clear):
        shown = Image.open(io.BytesIO(picture(path, content_hash(path))))
        assert np.asarray(shown.convert("RGB")).min() == 255
    grey = np.full((8, 8, 1), 200, np.uint8)
    assert np.asarray(Image.open(io.BytesIO(picture(grey, "any")))).max() == 200


def test_other_content_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("RGB", (8, 8)).save(path)
    with pytest.raises(Changed):
        picture(path, "0" * 64)
