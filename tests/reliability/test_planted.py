"""The bugs of benchmarks/planted.py still fit the sources, so that `make planted` can plant them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from planted import BUGS, Bug  # noqa: E402


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.kind)
def test_a_bug_has_one_place_in_the_sources(bug: Bug) -> None:
    assert (ROOT / "src" / "proud" / bug.file).read_text(encoding="utf-8").count(bug.right) == 1
    assert all((ROOT / "tests" / name).is_file() for name in bug.tests.split())
