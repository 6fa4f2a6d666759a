"""The lock file for development, and the list of licences, cover every package that is declared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] + [text for each in project["optional-dependencies"].values() for text in each]
    return {re.split(r"[\[<>=;\s]", text)[0].lower().replace("_", "-") for text in texts} - {"proud"}


def test_the_lock_file_pins_every_declared_package() -> None:
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    assert declared() <= pinned, "run `make lock`"
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line) for line in lines if not line.startswith("#"))


def test_every_declared_package_has_a_licence() -> None:
    text = (ROOT / "docs" / "reference" / "licences.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in declared()), "run `make licences`"
