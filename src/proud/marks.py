"""The mark that a command leaves in a folder it makes: what it may later replace there, and who is writing it now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from proud.files import json_file
from proud.held import HeldFolder
from proud.stored import MarkRecord
from proud.typed import parse_record

MARK = ".proud"
MOST_BYTES = 10_000


def mark_file(kind: Literal["run", "demo"], name: str, writer: str = "", runs: Sequence[str] = ()) -> bytes:
    """`name`: its id; `writer`: the process that owns the folder at the moment; `runs`: ids of what may be replaced."""
    about = {"format": "proud-mark-1", "kind": kind, "id": name, "writer": writer}
    return json_file(about | ({"runs": list(runs)} if runs else {}))


def read_mark(folder: HeldFolder) -> MarkRecord | None:
    """None if there is none, or one that we did not write."""
    try:
        return parse_record(folder.read(MARK, MOST_BYTES), MarkRecord)
    except (OSError, ValueError):
        return None


def is_marked(folder: HeldFolder, kind: Literal["run", "demo"]) -> bool:
    found = read_mark(folder)
    return found is not None and found["kind"] == kind
