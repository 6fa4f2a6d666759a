"""Shared by all table writers: read results files, write Markdown, name the source of a result."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str) -> Any:
    path = RESULTS / name
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def source(name: str, result: dict[str, Any]) -> str:
    """The file, which also holds the command that made it."""
    return f"\n`benchmarks/results/{name}` · commit {result['commit']} · {result['device']}\n"


def unless_missing(name: str, command: str, make: Callable[[str, Any], str]) -> str:
    """The table of a results file, or the command that is still to be run."""
    if (RESULTS / name).exists():
        return make(name, read(name))
    return f"Not measured yet: `{command}`.\n"


def this_command() -> str:
    """The command line, without absolute paths of this machine."""
    return shlex.join(["python", *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv)])
