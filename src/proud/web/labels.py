"""The table of labels behind `proud review`: every change is on disk before it is acknowledged.

The file is rewritten as a whole and replaced atomically, so `proud train --labels` can read it at any time. Rows and
columns of other origin are kept.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from proud.data.csv_table import read_table
from proud.errors import UserError
from proud.files import make_folder, open_own, replacing
from proud.model.label_table import COLUMNS
from proud.text import nfc, plain_cell, safe_cell


class Target(NamedTuple):
    """An image that can get a label. Copies of one image share it."""

    domain: str
    content: str
    path: str
    guess: str
    uncertainty: str

    @property
    def key(self) -> tuple[str, str]:
        return self.domain, self.content


class Change(NamedTuple):
    """An empty label: none."""

    target: Target
    before: str
    after: str


Row = dict[str, str]
State = tuple[int, int, int] | None


class LabelTable:
    def __init__(self, path: Path, earlier: Iterable[Sequence[str]] = ()) -> None:
        """`earlier`: rows (in the order of COLUMNS) to start with, if there is no file yet."""
        self.path = path
        self.columns = list(COLUMNS)
        self.rows: list[Row] = [dict(zip(COLUMNS, map(str, cells), strict=True)) for cells in earlier]
        self.lines: list[str] = []
        self.places: dict[tuple[str, str], int] = {}
        self.history: list[list[Change]] = []
        self.state: State = None
        self.version = 0
        """grows when the file is read again"""
        if os.path.lexists(path):
            self._read()
        else:
            self._index()

    def label(self, target: Target) -> str:
        place = self._place(target)
        return "" if place is None else self.rows[place]["label"]

    def set(self, wanted: Iterable[tuple[Target, str]]) -> list[Change]:
        """Give each of them its label; returns what changed, once it is on disk."""
        self._refresh()
        changes = [Change(target, before, label) for target, label in wanted if (before := self.label(target)) != label]
        changes = list({change.target.key: change for change in changes}.values())
        self._apply([(change.target, change.after) for change in changes])
        if changes:
            self.history.append(changes)
        return changes

    def undo(self) -> list[Change]:
        """Take back the latest change; empty if there is none."""
        self._refresh()
        if not self.history:
            return []
        back = [Change(target, after, before) for target, before, after in self.history[-1]]
        self._apply([(change.target, change.after) for change in back])
        self.history.pop()
        return back

    # ---- memory and file

    def _apply(self, wanted: Sequence[tuple[Target, str]]) -> None:
        """Write first: if that fails, nothing has changed."""
        if not wanted:
            return
        count, old = len(self.rows), []
        for target, label in wanted:
            place = self._place(target)
            if place is None:
                row = dict.fromkeys(self.columns, "")
                row |= {"path": target.path, "domain": target.domain, "content": target.content}
                row |= {"guess": target.guess, "uncertainty": target.uncertainty}
                place = len(self.rows)
                self.rows.append(row)
                self.lines.append("")
                self.places[target.key] = place
            else:
                old.append((place, self.rows[place]["label"]))
            self._set(place, label)
        try:
            self._write()
        except UserError:
            for place, label in reversed(old):
                self._set(place, label)
            del self.rows[count:], self.lines[count:]
            self.places = {key: place for key, place in self.places.items() if place < count}
            raise

    def _set(self, place: int, label: str) -> None:
        self.rows[place]["label"] = label
        self.lines[place] = line_of([self.rows[place][name] for name in self.columns])

    def _place(self, target: Target) -> int | None:
        """By content; a row without one is found by its path."""
        place = self.places.get(target.key)
        return self.places.get((target.domain, f"path:{target.path}")) if place is None else place

    def _write(self) -> None:
        with replacing(self.path) as part:
            part.write_text("".join([line_of(self.columns), *self.lines]), encoding="utf-8", newline="")
        self.state = state_of(self.path)

    def _refresh(self) -> None:
        """Someone may have edited the file, in a spreadsheet for example."""
        if state_of(self.path) != self.state:
            self._read()
            self.history.clear()
            self.version += 1

    def _read(self) -> None:
        state = state_of(self.path)
        self.rows = [] if state is None else read_rows(self.path)  # a table that its owner removed is empty
        self.state = state
        extra = dict.fromkeys(name for row in self.rows for name in row)
        self.columns = [*COLUMNS, *(name for name in extra if name not in COLUMNS)]
        self.rows = [dict.fromkeys(self.columns, "") | row for row in self.rows]
        self._index()

    def _index(self) -> None:
        self.lines = [line_of([row[name] for name in self.columns]) for row in self.rows]
        self.places = {}
        for place, row in enumerate(self.rows):
            key = row["content"] or f"path:{row['path']}"
            self.places.setdefault((row["domain"], key), place)


def read_rows(path: Path) -> list[Row]:
    found = []
    for _, row in read_table(path, may_be_empty=True):
        cells = {name: plain_cell(value) for name, value in row.items()}
        found.append(cells | {name: nfc(cells[name]) for name in ("domain", "label")})
    return found


def line_of(cells: Iterable[str]) -> str:
    """As `files.write_table` writes it."""
    text = io.StringIO()
    csv.writer(text).writerow([safe_cell(cell) for cell in cells])
    return text.getvalue()


def state_of(path: Path) -> State:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


@contextmanager
def only_writer(path: Path, cache: Path) -> Iterator[None]:
    """Two servers must not write one table. The lock lies in the cache: nothing is left beside the table."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    make_folder(cache)
    with os.fdopen(open_own(cache / f"{name}.lock"), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another `proud review` is writing {path}: stop it, or choose another --out.") from error
        except OSError:  # a file system without locks
            pass
        yield
