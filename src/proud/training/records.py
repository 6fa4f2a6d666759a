"""The records of a run: one JSON line per epoch (timings, which differ between equal runs, in a separate file), and the
last pseudo-labels as a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import json_bytes, parse_json, sync_folder, user_errors, write_table

if TYPE_CHECKING:
    from proud.data.types import Task
    from proud.ops import PseudoLabels


class Records:
    """An append-only JSONL file that can be cut back to the state of a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, *records: dict[str, Any]) -> None:
        lines = b"".join(json_bytes(record) + b"\n" for record in records)
        with user_errors(self.path):
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
        """Keep the first `count` records; a partial last line is removed too."""
        whole = self._lines()
        if len(whole) < count:
            raise UserError(f"{self.path} has {len(whole)} of {count} records: restore it, or start with --overwrite.")
        for line in whole[:count]:
            self._parse(line)
        if not self.path.exists():
            return
        kept = sum(len(line) + 1 for line in whole[:count])
        with user_errors(self.path), self.path.open("rb+") as file:
            file.truncate(kept)
            os.fsync(file.fileno())

    def _lines(self) -> list[bytes]:
        """Complete lines: what follows the last line break is a partial write."""
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
            raise UserError(f"{self.path} has lines that are not records: restore it, or start with --overwrite.")
        return found


class NoRecords(Records):
    """For the other processes of a distributed run: only the first writes."""

    def append(self, *records: dict[str, Any]) -> None:
        pass

    def read(self) -> list[dict[str, Any]]:
        return []

    def cut(self, count: int) -> None:
        pass


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
