"""Features and logits of images by content, kept on disk for one network: each image is computed once.

One folder per network, named by a hash of its weights and input format:
    contents.u8   [N, 32]   SHA-256 of each image's file
    features.f16  [N, d]
    logits.f32    [N, K]
The files only grow; rows that a killed process left incomplete are cut off. No torch.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from proud.files import make_folder, open_own, user_errors

MOST_BYTES = 4 << 30  # of all networks together; the least recently used go first
ROWS_AT_ONCE = 8192
HASH_BYTES = 32


class FeatureStore:
    """Opened files: they can be read even if another process removes the folder."""

    def __init__(self, folder: Path, width: int, classes: int) -> None:
        self.folder = folder
        parts = {
            "contents.u8": np.dtype(("u1", HASH_BYTES)),
            "features.f16": np.dtype(("<f2", width)),
            "logits.f32": np.dtype(("<f4", classes)),
        }
        with user_errors(folder):
            make_folder(folder)
            self.files = {name: os.fdopen(open_own(folder / name, os.O_APPEND), "ab+") for name in parts}
        self.kinds = parts
        self.places: dict[str, int] = {}

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    @contextmanager
    def writing(self) -> Iterator[FeatureStore]:
        """One process adds rows, the others wait. Knows all contents from here on."""
        with user_errors(self.folder), os.fdopen(open_own(self.folder / "lock"), "rb") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            count = min(
                os.fstat(file.fileno()).st_size // self.kinds[name].itemsize for name, file in self.files.items()
            )
            for name, file in self.files.items():
                file.truncate(count * self.kinds[name].itemsize)
            text = self._map("contents.u8").tobytes().hex() if count else ""
            size = 2 * HASH_BYTES
            self.places = {text[at * size : (at + 1) * size]: at for at in range(count)}
            os.utime(self.folder)
            yield self

    def add(self, contents: Sequence[str], features: np.ndarray, logits: np.ndarray) -> None:
        """New rows; contents that are there already are skipped."""
        fresh = {content: at for at, content in enumerate(contents) if content not in self.places}
        rows = list(fresh.values())
        hashes = np.frombuffer(bytes.fromhex("".join(fresh)), np.uint8)
        for name, values in (("contents.u8", hashes), ("features.f16", features[rows]), ("logits.f32", logits[rows])):
            file = self.files[name]
            file.write(np.ascontiguousarray(values, self.kinds[name].base).tobytes())
            file.flush()
        self.places |= {content: len(self.places) + at for at, content in enumerate(fresh)}

    def features(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """float32 [n, d], piece by piece."""
        yield from self._pieces("features.f16", rows)

    def logits(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """float32 [n, K], piece by piece."""
        yield from self._pieces("logits.f32", rows)

    def _pieces(self, name: str, rows: np.ndarray) -> Iterator[np.ndarray]:
        if len(rows) == 0:
            return
        mapped = self._map(name)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            yield mapped[rows[start : start + ROWS_AT_ONCE]].astype(np.float32)

    def _map(self, name: str) -> np.ndarray:
        return np.memmap(self.files[name], dtype=self.kinds[name], mode="r")


def trim_stores(home: Path, keep: Path, most: int = MOST_BYTES) -> None:
    """Remove the stores that were not used for longest, until the rest is small enough."""
    stores = sorted((path for path in home.iterdir() if path.is_dir() and path != keep), key=_last_used, reverse=True)
    total = _bytes_in(keep)
    for store in stores:
        total += _bytes_in(store)
        if total > most:
            shutil.rmtree(store, ignore_errors=True)


def _last_used(folder: Path) -> float:
    return folder.stat().st_mtime


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
