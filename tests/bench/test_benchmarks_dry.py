"""Dry runs on made-up trees of the real layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.conftest import write_domains
from proud.bench.results import read_rows
from proud.bench_cli import BenchArguments, bench
from proud.report.published import PUBLISHED


def test_office_home(
    arguments: Callable[..., BenchArguments], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four domains, 65 classes, folders spelled as they are shipped; all 12 combinations."""
    classes = [f"Class_{number:02d}" for number in range(65)]
    root = write_domains(tmp_path / "OfficeHome", ("Art", "Clipart", "Product", "Real World"), classes, 2, side=8)
    usual = {"name": "office-home", "root": str(root), "set": ("batch_size=64",)}
    assert bench(arguments(**usual, combos="all")) == 0
    assert bench(arguments(**usual, combos="art:real_world", methods="proud,erm")) == 0
    rows = read_rows(Path(arguments().out) / "results.jsonl")
    assert [(row["labeled"], row["test"]) for row in rows[:12]] == PUBLISHED["office-home"].combos
    assert [row["method"] for row in rows[12:]] == ["proud"]
    assert rows[0]["images"]["clipart"] == 130  # the test domain: all its images
    assert rows[0]["config"]["method_config"]["weight_decay"] == 0.0001
    out = capsys.readouterr().out
    assert "### Office-Home" in out and "ProUD (published)" in out and "Ar•/Rw*" in out
