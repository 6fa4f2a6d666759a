"""Builds a domain's image cache piece by piece, and checks which pieces are intact. See `cache` for the files."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from proud.data.catalog import Catalog, DomainFiles
from proud.data.decode import BadImage, PixelFormat, content_hash, decode, in_threads, with_bar
from proud.data.file_states import PendingStates, state, states

VERSION = 4
ROWS_PER_PIECE = 4096
NAMES = ("hashes", "order", "images")


def root_of(catalog: Catalog) -> str:
    return str(catalog.root or Path())


def locations(domain: DomainFiles) -> list[str]:
    return [entry[0] for entry in domain.entries]


class CachedFiles:
    """The domain's files as they are now."""

    def __init__(self, catalog: Catalog, domain: DomainFiles, pending: PendingStates | None = None) -> None:
        self.name, self.entries = domain.name, domain.entries
        self.root = root_of(catalog)
        self.states = pending.states(self.name) if pending else states(self.root, locations(domain))

    def __len__(self) -> int:
        return len(self.entries)

    def source(self, place: int) -> Path:
        return Path(self.root, self.entries[place].location)

    def key(self, pixels: PixelFormat) -> str:
        """A hash of everything that decides the content; another Pillow may decode slightly differently."""
        about = [VERSION, asdict(pixels), PIL.__version__, os.path.realpath(self.root), self.name]
        digest = hashlib.sha256(json.dumps(about).encode())
        for which in range(3):  # locations, labels, splits
            texts = [entry[which] or "" for entry in self.entries]
            digest.update(("\0".join(texts) + "\0\0").encode(errors="surrogateescape"))
        digest.update(self.states.astype("<i8").tobytes())
        return digest.hexdigest()[:32]


class Build:
    def __init__(self, home: Path, files: CachedFiles, pixels: PixelFormat, progress: bool) -> None:
        self.home, self.files, self.pixels, self.progress = home, files, pixels, progress
        self.count = len(files)
        self.row_bytes = {"hashes": 32, "images": 3 * pixels.side**2}
        self.identity = {"root": os.path.realpath(files.root), "domain": files.name, **asdict(pixels)}

    # ---- is it there?

    def intact(self) -> dict[str, Any] | None:
        """The description of a finished cache. Files that have changed since are verified by their checksums."""
        done = read_description(self.home / "done.json")
        if done is None or done.get("version") != VERSION or done.get("count") != self.count:
            return None
        try:
            changed = [name for name in NAMES if tuple(done["files"][name]) != state(self._path(name))]
            damaged = [name for name in changed if not self._check(name, done["sums"][name])]
            return done if not damaged and all(row.isdigit() for row in done["bad"]) else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _check(self, name: str, sums: dict[str, int]) -> bool:
        """Damaged pieces are made again by the next build."""
        damaged = [piece for piece, value in sums.items() if self._sum(name, int(piece)) != value]
        if damaged:
            (self.home / "done.json").unlink(missing_ok=True)
        return not damaged

    # ---- making it

    def run(self) -> dict[str, Any]:
        steps = self._steps()
        hashes = self._pieces("hashes", steps, self._hash_row, f"Reading {self.files.name}")
        order = self._order(steps)
        images = self._pieces("images", steps, lambda row, out: self._decode_row(order[row], out), self._title())
        done = {
            "version": VERSION,
            "count": self.count,
            "made_from": self.identity,
            "sums": {"hashes": hashes["sums"], "order": {"0": self._sum("order", 0)}, "images": images["sums"]},
            "files": {name: state(self._path(name)) for name in NAMES},
            "bad": images["bad"],
        }
        part = self.home / "done.json.part"
        part.write_text(json.dumps(done), encoding="utf-8")
        _sync(part)
        part.replace(self.home / "done.json")
        return done

    def _title(self) -> str:
        return f"Decoding {self.files.name} into the cache"

    def _steps(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The intact pieces of an earlier build."""
        path = self.home / "steps.jsonl"
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
            try:
                step = json.loads(line)
                key = (str(step["name"]), int(step["piece"]))
                if self._sum(*key) == step["sum"]:
                    found[key] = step
            except (ValueError, KeyError, TypeError):
                continue
        text = "".join(json.dumps(step) + "\n" for step in found.values())
        path.write_text(text, encoding="utf-8")  # without partial and outdated lines
        return found

    def _pieces(
        self,
        name: str,
        steps: dict[tuple[str, int], dict[str, Any]],
        work: Callable[[int, np.ndarray], str],
        title: str,
    ) -> dict[str, Any]:
        """All pieces of a file; missing ones are made. `work` fills a row and returns the problem, if any."""
        path, width = self._path(name), self.row_bytes[name]
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(handle, self.count * width)

            def piece_by_piece() -> Iterator[int]:
                for piece in range(-(-self.count // ROWS_PER_PIECE)):
                    start = piece * ROWS_PER_PIECE
                    rows = min(ROWS_PER_PIECE, self.count - start)
                    if (name, piece) not in steps:
                        made = np.zeros((rows, width), dtype=np.uint8)
                        bad: dict[str, str] = {}

                        def fill(row: int, start: int = start, made: np.ndarray = made, bad: dict = bad) -> None:
                            if wrong := work(start + row, made[row]):
                                bad[str(start + row)] = wrong

                        in_threads(fill, rows)
                        _write_at(handle, made.tobytes(), start * width)
                        os.fdatasync(handle)
                        steps[name, piece] = {
                            "name": name,
                            "piece": piece,
                            "sum": zlib.crc32(made.tobytes()),
                            "bad": bad,
                        }
                        self._note(steps[name, piece])
                    yield rows

            for _ in with_bar(piece_by_piece(), self.count, self.progress, title):
                pass
        finally:
            os.close(handle)
        mine = {str(piece): step for (kind, piece), step in steps.items() if kind == name}
        return {
            "sums": {piece: step["sum"] for piece, step in mine.items()},
            "bad": {row: reason for step in mine.values() for row, reason in step.get("bad", {}).items()},
        }

    def _order(self, steps: dict[tuple[str, int], dict[str, Any]]) -> list[int]:
        hashes = self._path("hashes").read_bytes()
        entries = self.files.entries
        order = sorted(
            range(self.count),
            key=lambda p: (hashes[32 * p : 32 * p + 32], entries[p].label or "", entries[p].location),
        )
        content = np.array(order, dtype="<i8").tobytes()
        if steps.get(("order", 0), {}).get("sum") != zlib.crc32(content):
            self._path("order").write_bytes(content)
            _sync(self._path("order"))
            steps["order", 0] = {"name": "order", "piece": 0, "sum": zlib.crc32(content)}
            self._note(steps["order", 0])
        return order

    def _hash_row(self, place: int, out: np.ndarray) -> str:
        try:
            out[:] = np.frombuffer(bytes.fromhex(content_hash(self.files.source(place))), dtype=np.uint8)
        except BadImage:
            out[:] = 0
        return ""

    def _decode_row(self, place: int, out: np.ndarray) -> str:
        try:
            out[:] = decode(self.files.source(place), self.pixels).flatten().numpy()
        except BadImage as error:
            return str(error)
        return ""

    # ---- files

    def _path(self, name: str) -> Path:
        return self.home / (f"{name}.i64" if name == "order" else f"{name}.u8")

    def _note(self, step: dict[str, Any]) -> None:
        with (self.home / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(step) + "\n")

    def _sum(self, name: str, piece: int) -> int | None:
        path = self._path(name)
        try:
            with path.open("rb") as file:
                if name == "order":
                    return zlib.crc32(file.read())
                width = self.row_bytes[name]
                file.seek(piece * ROWS_PER_PIECE * width)
                rows = min(ROWS_PER_PIECE, self.count - piece * ROWS_PER_PIECE)
                content = file.read(rows * width)
                return zlib.crc32(content) if len(content) == rows * width else None
        except (OSError, KeyError):
            return None


def _write_at(handle: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written


def read_description(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
