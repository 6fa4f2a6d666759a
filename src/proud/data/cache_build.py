"""Builds a domain's image cache piece by piece, and checks which pieces are intact. See `cache` for the files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL

from proud.data.catalog import Catalog, DomainFiles
from proud.data.decode import BadImage, PixelFormat, content_hash, decode, hash_all, in_threads, with_bar
from proud.data.file_states import PendingStates, state, states
from proud.files import MOST_JSON_BYTES, json_bytes, json_file, open_own, read_regular
from proud.stamps import sealed
from proud.stored import CacheRecord, PieceRecord
from proud.typed import parse_sealed

VERSION = 4
ROWS_PER_PIECE = 4096
PieceOf = Literal["hashes", "order", "images"]
NAMES: tuple[PieceOf, ...] = ("hashes", "order", "images")
SAMPLED_FILES = 256
SAMPLED_BYTES = 1 << 28
Steps = dict[tuple[str, int], PieceRecord]


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

    def intact(self, whole: bool = False) -> CacheRecord | None:
        """The description of a finished cache. Size and time do not prove that nothing has changed: some of the images'
        files (`whole`: all) are compared with their hashes, and some pieces with their checksums. Once any is damaged,
        all are."""
        done = read_description(self.home / "done.json")
        if done is None or done["version"] != VERSION or done["count"] != self.count:
            return None
        if not all(row.isdigit() for row in done["bad"]) or not self._complete(done):
            return None
        changed = any(done["files"][name] != state(self._path(name)) for name in NAMES)
        if whole or changed or not self._some_pieces(done):
            damaged = [name for name in NAMES if not self._check(name, done["sums"][name], done["sums"][name])]
            if damaged:
                return None
        if not self._sources_unchanged(self.count if whole else SAMPLED_FILES):
            for name in ("done.json", "steps.jsonl"):  # everything is of other images
                (self.home / name).unlink(missing_ok=True)
            return None
        return done

    def _complete(self, done: CacheRecord) -> bool:
        pieces = {str(piece) for piece in range(-(-self.count // ROWS_PER_PIECE))}
        wanted = {"hashes": pieces, "order": {"0"}, "images": pieces}
        return all(done["sums"].get(name, {}).keys() == wanted[name] for name in NAMES)

    def _some_pieces(self, done: CacheRecord) -> bool:
        """At least one piece of each file, and as many as a start-up has time for."""
        for name in NAMES:
            width = ROWS_PER_PIECE * self.row_bytes.get(name, 8)
            many = max(1, SAMPLED_BYTES // width)
            pieces = random.sample(sorted(done["sums"][name]), min(many, len(done["sums"][name])))
            if not self._check(name, done["sums"][name], pieces):
                return False
        return True

    def _check(self, name: str, sums: Mapping[str, int], pieces: Iterable[str]) -> bool:
        """Damaged pieces are made again by the next build."""
        intact = all(self._sum(name, int(piece)) == sums[piece] for piece in pieces)
        if not intact:
            (self.home / "done.json").unlink(missing_ok=True)
        return intact

    def _sources_unchanged(self, many: int) -> bool:
        """Whether so many files, chosen at random, still have the content that was decoded."""
        hashes = np.fromfile(self._path("hashes"), dtype=np.uint8).reshape(-1, 32)
        places = random.sample(range(self.count), min(many, self.count))
        now = hash_all([self.files.source(place) for place in places])
        was = [hashes[place].tobytes().hex() for place in places]
        return [each or "0" * 64 for each in now] == was

    # ---- making it

    def run(self) -> CacheRecord:
        steps = self._steps()
        hashes = self._pieces("hashes", steps, self._hash_row, f"Reading {self.files.name}")
        order = self._order(steps)
        images = self._pieces("images", steps, lambda row, out: self._decode_row(order[row], out), self._title())
        done: CacheRecord = {
            "version": VERSION,
            "count": self.count,
            "made_from": self.identity,
            "sums": {"hashes": hashes["sums"], "order": {"0": steps["order", 0]["sum"]}, "images": images["sums"]},
            "files": {name: state(self._path(name)) for name in NAMES},
            "bad": images["bad"],
        }
        part = self.home / "done.json.part"
        part.write_bytes(json_file(sealed({**done})))
        _sync(part)
        part.replace(self.home / "done.json")
        return done

    def _title(self) -> str:
        return f"Decoding {self.files.name} into the cache"

    def _steps(self) -> Steps:
        """The intact pieces of an earlier build."""
        path = self.home / "steps.jsonl"
        found: Steps = {}
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
            with suppress(ValueError):
                step = parse_sealed(line, PieceRecord)
                if self._sum(step["name"], step["piece"]) == step["sum"]:
                    found[step["name"], step["piece"]] = step
        path.write_bytes(b"".join(map(_line, found.values())))  # without partial and outdated lines
        return found

    def _pieces(
        self,
        name: PieceOf,
        steps: Steps,
        work: Callable[[int, np.ndarray], str],
        title: str,
    ) -> dict[str, Any]:
        """All pieces of a file; missing ones are made. `work` fills a row and returns the problem, if any."""
        path, width = self._path(name), self.row_bytes[name]
        handle = open_own(path)
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

    def _order(self, steps: Steps) -> list[int]:
        hashes = self._path("hashes").read_bytes()
        entries = self.files.entries
        order = sorted(
            range(self.count),
            key=lambda p: (hashes[32 * p : 32 * p + 32], entries[p].label or "", entries[p].location),
        )
        content = np.array(order, dtype="<i8").tobytes()
        known = steps.get(("order", 0))
        if known is None or known["sum"] != zlib.crc32(content):
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

    def _note(self, step: PieceRecord) -> None:
        with (self.home / "steps.jsonl").open("ab") as file:
            file.write(_line(step))

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


def _line(step: PieceRecord) -> bytes:
    return json_bytes(sealed({**step})) + b"\n"


def read_description(path: Path) -> CacheRecord | None:
    try:
        return parse_sealed(read_regular(path, MOST_JSON_BYTES), CacheRecord)
    except (OSError, ValueError):
        return None


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
