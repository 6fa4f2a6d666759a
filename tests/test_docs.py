"""The tables in README and docs are what the results files say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/docs_tables.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
