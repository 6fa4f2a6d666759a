"""What a run tells about itself: one JSON line per epoch (timings, which differ between equal runs, in a file of their
own), and the last pseudo-labels as a table."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import json_bytes, parse_json, replacing, sync_folder, telling_why, text_of

if TYPE_CHECKING:
    from proud.data.types import Task
    from proud.ops import PseudoLabels


class Records:
    """An append-only JSONL file that can be cut back to what a checkpoint knows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, *records: dict[str, Any]) -> None:
        lines = b"".join(json_bytes(record) + b"\n" for record in records)
        with telling_why(self.path):
            new = not self.path.exists()
            with self.path.open("ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync_folder(self.path.parent)

    def read(self) -> list[dict[str, Any]]:
        return [self._parse(line) for line in self._lines() if line.strip()]

    def cut(self, count: int) -> None:
        """Keep the first `count` records; a torn last line goes too."""
        whole = self._lines()
        if len(whole) < count:
            raise UserError(f"{self.path} has {len(whole)} of {count} records: restore it, or start with --overwrite.")
        for line in whole[:count]:
            self._parse(line)
        if not self.path.exists():
            return
        kept = sum(len(line) + 1 for line in whole[:count])
        with telling_why(self.path), self.path.open("rb+") as file:
            file.truncate(kept)
            os.fsync(file.fileno())

    def _lines(self) -> list[bytes]:
        """Whole lines: what follows the last line break is torn."""
        try:
            return self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            found = parse_json(line)
        except ValueError as error:
            raise UserError(f"{self.path} is damaged ({error}): restore it, or start with --overwrite.") from error
        if not isinstance(found, dict):
            raise UserError(f"{self.path} holds lines that are not records: restore it, or start with --overwrite.")
        return found


class NoRecords(Records):
    """Where several processes train one network, one of them keeps the records."""

    def append(self, *records: dict[str, Any]) -> None:
        pass

    def read(self) -> list[dict[str, Any]]:
        return []

    def cut(self, count: int) -> None:
        pass


def write_pseudo_labels(path: Path, found: dict[str, PseudoLabels], task: Task) -> None:
    """Domain, path (row of an array), label and uncertainty of every unlabeled image; no file where none are made."""
    rows = []
    for name, pseudo in found.items():
        audit = task.evaluation.audits.get(name)
        places = audit.paths if audit is not None else [str(row) for row in range(len(pseudo.labels))]
        labels, uncertainty = pseudo.labels.tolist(), pseudo.uncertainty.tolist()
        for place, label, doubt in sorted(zip(places, labels, uncertainty, strict=True)):
            rows.append([name, place, task.training.classes[label], f"{doubt:.4f}"])
    if rows:
        write_table(path, ["domain", "path", "label", "uncertainty"], rows)


def write_table(path: Path, columns: list[str], rows: Iterable[list[Any]]) -> None:
    """A CSV file that is safe to open in a spreadsheet."""
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([safe_cell(column) for column in columns])
        writer.writerows([safe_cell(value) for value in row] for row in rows)


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets a leading apostrophe; file names of any bytes are text."""
    if not isinstance(value, str):
        return value
    # some programs skip blanks and control characters, and take the wide forms for the plain ones
    first = value.lstrip("".join(map(chr, range(33))) + "\x7f\xa0\ufeff")[:1]
    formula = first in tuple("=+-@＝＋－＠") or value[:1] in ("\t", "\r", "\n")
    return text_of(f"'{value}" if formula and value else value)


def plain_cell(text: str) -> str:
    """The text that `safe_cell` made safe."""
    return text[1:] if text.startswith("'") and safe_cell(text[1:]) == text else text
