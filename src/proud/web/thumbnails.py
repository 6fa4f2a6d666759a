"""Small JPEG and PNG copies of images, made once and kept in a bounded database in the user's cache folder."""

from __future__ import annotations

import io
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proud.data.decode import BadImage, Source, content_hash, pixels_of
from proud.data.walk import FORMATS, MAX_BYTES
from proud.files import make_folder, open_plain

SIDE, LARGE_SIDE = 192, 1280
LOSSLESS_SIDE = 64  # smaller images show every pixel
MOST_BYTES = 1 << 30
TRIMMED = 0.9  # of MOST_BYTES, after the oldest were removed
CHECKED_EVERY = 500  # new thumbnails


class Changed(Exception):
    """The file is not the image that was looked at any more."""


class Thumbnails:
    """By content. Losing any of it costs time only."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        make_folder(folder)
        self.path, self.most = folder / "thumbnails.sqlite", most
        self.lock, self.added = threading.Lock(), 0
        try:
            self.database = self._open()
        except sqlite3.DatabaseError:  # damaged
            self.path.unlink(missing_ok=True)
            self.database = self._open()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, check_same_thread=False, timeout=10, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("PRAGMA auto_vacuum=FULL")
        database.execute("CREATE TABLE IF NOT EXISTS thumbnails (content TEXT PRIMARY KEY, image BLOB NOT NULL)")
        return database

    def close(self) -> None:
        self.database.close()

    def get(self, content: str, make: Callable[[], bytes]) -> bytes:
        with self.lock:
            found = self._try("SELECT image FROM thumbnails WHERE content = ?", content)
        if found:
            return bytes(found[0][0])
        image = make()
        with self.lock:
            self._try("INSERT OR REPLACE INTO thumbnails VALUES (?, ?)", content, image)
            self.added += 1
            if self.added % CHECKED_EVERY == 0:
                self.trim()
        return image

    def trim(self) -> None:
        """Remove the oldest until a tenth is free."""
        found = self._try("SELECT SUM(LENGTH(image)), COUNT(*) FROM thumbnails")
        total, count = found[0] if found else (0, 0)
        if (total or 0) > self.most:
            surplus = int(count * (1 - TRIMMED * self.most / total)) + 1
            self._try(
                "DELETE FROM thumbnails WHERE rowid IN (SELECT rowid FROM thumbnails ORDER BY rowid LIMIT ?)", surplus
            )

    def _try(self, statement: str, *values: object) -> list[Any]:
        """A full disk or a locked file must not hide an image."""
        try:
            return self.database.execute(statement, values).fetchall()
        except sqlite3.Error:
            return []


def picture(source: Source, content: str, side: int = SIDE) -> bytes:
    """The image, upright and re-encoded, at most `side` pixels wide and high. Only the very content that was looked at
    is shown: a file that was replaced, by a link for example, is not."""
    if isinstance(source, np.ndarray):
        image = Image.fromarray(np.ascontiguousarray(np.broadcast_to(source, (*source.shape[:2], 3))))
    else:
        data = source if isinstance(source, bytes) else read(source)
        if content_hash(data) != content:
            raise Changed
        image = opened(data, side)
    image.thumbnail((side, side), Image.Resampling.BILINEAR)
    out = io.BytesIO()
    if max(image.size) <= LOSSLESS_SIDE:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=82)
    return out.getvalue()


def read(path: Path) -> bytes:
    try:
        with open_plain(path, MAX_BYTES) as file:
            return file.read()
    except OSError as error:
        raise Changed from error


def opened(data: bytes, side: int) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            image.draft("RGB", (2 * side, 2 * side))
            return Image.fromarray(pixels_of(image))
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # Pillow raises errors of every kind on broken content
        raise BadImage(str(error)) from error


def media_type(image: bytes) -> str:
    return "image/png" if image.startswith(b"\x89PNG") else "image/jpeg"
