"""The records of a run: one JSON line per epoch (timings, which differ between equal runs, in a separate file), and the
last pseudo-labels as a table."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from proud.errors import UserError
from proud.files import MOST_LINES_BYTES, json_bytes, read_regular, sync_folder, user_errors, write_table
from proud.stored import EpochRecord, TimingRecord
from proud.text import plain_cell
from proud.typed import Kind, as_record, parse_lines

if TYPE_CHECKING:
    from proud.data.types import Task
    from proud.ops import PseudoLabels


class Records(Generic[Kind]):
    """An append-only JSONL file that can be cut back to the state of a checkpoint."""

    def __init__(self, path: Path, kind: type[Kind]) -> None:
        self.path, self.kind = path, kind

    def append(self, *records: Mapping[str, object]) -> None:
        try:
            lines = b"".join(json_bytes(as_record(record, self.kind)) + b"\n" for record in records)
        except ValueError as error:
            raise UserError(f"An epoch cannot be recorded in {self.path}: {error}.") from error
        with user_errors(self.path):
            new = not self.path.exists()
            with self.path.open("ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync_folder(self.path.parent)

    def read(self) -> list[Kind]:
        return self._parse(self._lines())

    def cut(self, count: int) -> None:
        """Keep the first `count` records; a partial last line is removed too."""
        whole = self._lines()
        if len(whole) < count:
            raise UserError(f"{self.path} has {len(whole)} of {count} records: restore it, or start with --overwrite.")
        self._parse(whole[:count])
        if not self.path.exists():
            return
        kept = sum(len(line) + 1 for line in whole[:count])
        with user_errors(self.path), self.path.open("rb+") as file:
            file.truncate(kept)
            os.fsync(file.fileno())

    def _lines(self) -> list[bytes]:
        """Complete lines: what follows the last line break is a partial write."""
        try:
            return read_regular(self.path, MOST_LINES_BYTES).split(b"\n")[:-1] if self.path.exists() else []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def _parse(self, lines: list[bytes]) -> list[Kind]:
        try:
            return list(parse_lines(b"\n".join(lines), self.kind))
        except ValueError as error:
            raise UserError(f"{self.path} is damaged ({error}): restore it, or start with --overwrite.") from error


class NoRecords(Records[Kind]):
    """For the other processes of a distributed run: only the first writes."""

    def append(self, *records: Mapping[str, object]) -> None:
        pass

    def read(self) -> list[Kind]:
        return []

    def cut(self, count: int) -> None:
        pass


def epochs_of(folder: Path) -> Records[EpochRecord]:
    return Records(folder / "records.jsonl", EpochRecord)


def timings_of(folder: Path) -> Records[TimingRecord]:
    return Records(folder / "timings.jsonl", TimingRecord)


def write_pseudo_labels(path: Path, found: dict[str, PseudoLabels], task: Task) -> None:
    """Domain, path (row of an array), label and uncertainty of every unlabeled image; no file without pseudo-labels."""
    rows = []
    for name, pseudo in found.items():
        audit = task.evaluation.audits.get(name)
        places = audit.paths if audit is not None else [str(row) for row in range(len(pseudo.labels))]
        labels, uncertainty = pseudo.labels.tolist(), pseudo.uncertainty.tolist()
        for place, label, doubt in sorted(zip(places, labels, uncertainty, strict=True)):
            rows.append([name, place, task.training.classes[label], f"{doubt:.4f}"])
    if rows:
        write_table(path, ["domain", "path", "label", "uncertainty"], rows)


def read_pseudo_labels(path: Path, names: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Per domain, columns in the order of the paths or, for arrays, of their rows."""
    domains: dict[str, list[dict[str, str]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                row = {column: plain_cell(text) for column, text in cells.items()}
                domains.setdefault(row["domain"], []).append(row)
    found = {}
    for name, rows in domains.items():
        in_memory = all(row["path"].isdigit() for row in rows)
        if in_memory:
            rows.sort(key=lambda row: int(row["path"]))
        places = np.array([int(row["path"]) for row in rows]) if in_memory else np.array([row["path"] for row in rows])
        found[name] = {
            "row" if in_memory else "path": places,
            "label": np.array([names.get(row["label"], row["label"]) for row in rows]),
            "uncertainty": np.array([float(row["uncertainty"]) for row in rows]),
        }
    return found
