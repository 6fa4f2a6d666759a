"""Mutated files, a few hundred of each kind. Full size: `make soak`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from children import ends, start
from hostile import KINDS, fuzz_into
from sizes import FUZZ


@pytest.mark.parametrize("kind", KINDS)
def test_fuzz(kind: str, tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    assert ends(start(fuzz_into, kind, FUZZ[kind], tmp_path / "files", answer)) == 0, "the interpreter crashed"
    found = json.loads(answer.read_text())
    assert "failure" not in found, found["failure"]
    assert found["refused"] > 0 and found["used"] > 0
