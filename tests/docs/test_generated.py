"""The tables in README and docs match the results files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from proud.bench.results import read_rows
from proud.report.tables import write_tables

ROOT = Path(__file__).parents[2]


def test_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/docs_tables.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_columns_of_csv_files_are_documented() -> None:
    text = (ROOT / "docs" / "guide" / "data.md").read_text(encoding="utf-8")
    assert all(f"`{column}`" in text for column in ("path", "domain", "label", "group", "split"))


def test_the_picture_of_the_setting_shows_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python benchmarks/setting_picture.py docs/images/setting.png` writes it, and its numbers into it."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from setting_picture import accuracies

    with Image.open(ROOT / "docs" / "images" / "setting.png") as picture:
        assert picture.text["Description"] == str(accuracies())


@pytest.mark.parametrize("bench", ["pacs", "digits-dg"])
def test_tables_in_the_results_folder_are_up_to_date(bench: str, tmp_path: Path) -> None:
    """What `proud bench NAME --table-only --results …` writes."""
    there = ROOT / "benchmarks" / "results"
    write_tables(bench, read_rows(there / f"{bench}.jsonl"), tmp_path / bench)
    for path in sorted(tmp_path.iterdir()):
        assert (there / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), path.name


def test_the_estimate_of_site_accuracy_matches_the_results(tmp_path: Path) -> None:
    stored = json.loads((ROOT / "benchmarks" / "results" / "site_accuracy.json").read_text(encoding="utf-8"))
    words = shlex.split(stored["command"])[1:]
    words[words.index("--out") + 1] = str(tmp_path / "now.json")
    words[words.index("--model") + 1] = str(tmp_path / "model.json")
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    now = json.loads((tmp_path / "now.json").read_text(encoding="utf-8"))
    for part in ("limits", "regressions", "sites", "tests"):
        assert now[part] == stored[part], part
