"""Finished runs below some folders."""

from __future__ import annotations

from pathlib import Path


def find_runs(folders: list[Path]) -> list[Path]:
    found = {path.parent for folder in folders for path in folder.rglob("run.json")}
    return sorted(folder for folder in found if (folder / "result.json").is_file())
