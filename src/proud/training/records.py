"""What a run tells about itself: one JSON line per epoch (timings, which differ between equal runs, in a file of their
own), and the last pseudo-labels as a table."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.training.files import replacing, telling_why

if TYPE_CHECKING:
    from proud.data.domain import Task
    from proud.ops import PseudoLabels


class Records:
    """An append-only JSONL file that can be cut back to what a checkpoint knows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with telling_why(self.path), self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def cut(self, count: int) -> None:
        """Keep the first `count` records; a torn last line goes too."""
        whole = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        if len(whole) < count:
            raise UserError(f"{self.path} has {len(whole)} of {count} records: restore it, or start with --overwrite.")
        if not self.path.exists():
            return
        kept = b"".join(line + b"\n" for line in whole[:count])
        with self.path.open("rb+") as file:
            file.truncate(len(kept))
            os.fsync(file.fileno())


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


def write_table(path: Path, columns: list[str], rows: list[list[Any]]) -> None:
    """A CSV file that is safe to open in a spreadsheet."""
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([safe_cell(value) for value in row] for row in rows)


def safe_cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets a leading apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
