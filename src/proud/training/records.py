"""The records of a run: one JSON line per epoch (timings, which differ between equal runs, in a separate file), and the
last pseudo-labels as a table."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from proud.errors import UserError
from proud.files import MOST_LINES_BYTES, json_bytes, table_bytes
from proud.manifest import Files
from proud.stamps import Stamp
from proud.stored import EpochRecord, TimingRecord
from proud.text import plain_cell
from proud.typed import Kind, as_record, parse_lines

if TYPE_CHECKING:
    from proud.data.types import Task
    from proud.held import HeldFolder
    from proud.ops import PseudoLabels


MOST_TABLE_BYTES = 10_000_000_000
RESTORE = "restore it, or start with --overwrite."


class Records(Generic[Kind]):
    """A JSONL file of a run, for reading."""

    def __init__(self, path: Path, kind: type[Kind]) -> None:
        self.path, self.kind = path, kind

    def read(self) -> list[Kind]:
        return self._parse(self._lines())

    def _content(self) -> bytes:
        return Files(self.path.parent).read(self.path.name, MOST_LINES_BYTES)

    def _lines(self) -> list[bytes]:
        """Complete lines: what follows the last line break is a partial write."""
        try:
            return self._content().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def _parse(self, lines: list[bytes]) -> list[Kind]:
        try:
            found = list(parse_lines(b"\n".join(lines), self.kind))
            check_order(found)
        except ValueError as error:
            raise UserError(f"{self.path} is damaged ({error}): {RESTORE}") from error
        return found


def check_order(records: Sequence[Any]) -> None:
    """ValueError unless every stage comes once, with its epochs in turn."""
    seen: set[str] = set()
    stage, epoch = "", 0
    for number, record in enumerate(records, 1):
        if record["stage"] != stage and record["stage"] not in seen:
            stage, epoch = record["stage"], 0
            seen.add(stage)
        if (record["stage"], record["epoch"]) != (stage, epoch + 1):
            raise ValueError(f"line {number}: epoch {record['epoch']} of {record['stage']} is out of order")
        epoch += 1


class OwnRecords(Records[Kind]):
    """The file as the run writes it: append-only, and cut back to the state of a checkpoint."""

    def __init__(self, folder: HeldFolder, name: str, kind: type[Kind]) -> None:
        super().__init__(folder.path / name, kind)
        self.folder, self.name = folder, name
        self._written, self._digest = 0, hashlib.sha256()

    def append(self, *records: Mapping[str, object]) -> None:
        try:
            lines = b"".join(json_bytes(as_record(record, self.kind)) + b"\n" for record in records)
        except ValueError as error:
            raise UserError(f"An epoch cannot be recorded in {self.path}: {error}.") from error
        self.folder.append(self.name, lines, self._written)
        self._written += len(lines)
        self._digest.update(lines)

    def stamp(self) -> Stamp:
        """Of all lines that were written."""
        return Stamp(self._written, self._digest.hexdigest())

    def read(self) -> list[Kind]:
        """What was written, and nothing else."""
        lines = self._lines()
        if Stamp.of(_joined(lines)) != self.stamp():
            raise UserError(f"{self.path} was changed while this run was writing it: {RESTORE}")
        return self._parse(lines)

    def cut(self, count: int, stamp: Stamp | None = None) -> None:
        """Keep the first `count` records, which have this stamp; a partial last line is removed too."""
        whole = self._lines()
        if len(whole) < count:
            raise UserError(f"{self.path} has {len(whole)} of {count} records: {RESTORE}")
        kept = _joined(whole[:count])
        if stamp is not None and Stamp.of(kept) != stamp:
            raise UserError(f"{self.path} was changed since the last checkpoint: {RESTORE}")
        self._parse(whole[:count])
        self.folder.cut(self.name, len(kept))
        self._written, self._digest = len(kept), hashlib.sha256(kept)

    def _content(self) -> bytes:
        return self.folder.read(self.name, MOST_LINES_BYTES)


class NoRecords(OwnRecords[Kind]):
    """For the other processes of a distributed run: only the first writes."""

    def append(self, *records: Mapping[str, object]) -> None:
        pass

    def read(self) -> list[Kind]:
        return []

    def cut(self, count: int, stamp: Stamp | None = None) -> None:
        pass


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def epochs_of(folder: Path) -> Records[EpochRecord]:
    return Records(folder / "records.jsonl", EpochRecord)


def timings_of(folder: Path) -> Records[TimingRecord]:
    return Records(folder / "timings.jsonl", TimingRecord)


def pseudo_label_table(found: dict[str, PseudoLabels], task: Task) -> bytes:
    """CSV: domain, path (row of an array), label and uncertainty of every unlabeled image."""
    rows = []
    for name, pseudo in found.items():
        audit = task.evaluation.audits.get(name)
        places = audit.paths if audit is not None else [str(row) for row in range(len(pseudo.labels))]
        labels, uncertainty = pseudo.labels.tolist(), pseudo.uncertainty.tolist()
        for place, label, doubt in sorted(zip(places, labels, uncertainty, strict=True)):
            rows.append([name, place, task.training.classes[label], f"{doubt:.4f}"])
    return table_bytes(["domain", "path", "label", "uncertainty"], rows)


def read_pseudo_labels(files: Files, names: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Per domain, columns in the order of the paths or, for arrays, of their rows."""
    domains: dict[str, list[dict[str, str]]] = {}
    if files.has("pseudo_labels.csv"):
        text = files.read("pseudo_labels.csv", MOST_TABLE_BYTES).decode()
        for cells in csv.DictReader(io.StringIO(text, newline="")):
            row = {column: plain_cell(cell) for column, cell in cells.items()}
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
