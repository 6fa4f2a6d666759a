"""Damaged folders of runs and benches, and every command on them. Full size: `make soak`."""

from __future__ import annotations

import json
from pathlib import Path

from children import ends, start
from folders import fuzz_into
from sizes import FOLDERS


def test_damaged_folders(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    assert ends(start(fuzz_into, tmp_path / "files", range(FOLDERS), answer)) == 0
    found = json.loads(answer.read_text())
    assert found["bad"] == []
    assert found["refused"] > 0 and found["the same answer"] > 0
