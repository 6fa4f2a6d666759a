"""What a run tells about itself: one JSON line per epoch; timings, which differ between equal runs, in their own file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Records:
    """An append-only JSONL file that can be cut back to what a checkpoint knows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def cut(self, count: int) -> None:
        """Keep the first `count` records; a torn last line goes too."""
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")[:count]
        kept = b"".join(line + b"\n" for line in lines)
        with self.path.open("rb+") as file:
            file.truncate(len(kept))
            os.fsync(file.fileno())
