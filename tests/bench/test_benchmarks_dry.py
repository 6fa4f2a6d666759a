"""Dry runs on noise in the folders of the real benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.small_bench import Diary, Make, after, rows_of, work_on, write_domains
from proud.bench.results import read_rows
from proud.cli import bench
from proud.cli.bench import prepare
from proud.report.published import PUBLISHED


def test_office_home(arguments: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four domains, folders spelled as they are shipped; all 12 combinations."""
    classes = [f"Class_{number:02d}" for number in range(5)]
    root = write_domains(tmp_path / "OfficeHome", ("Art", "Clipart", "Product", "Real World"), classes, 2, side=8)
    usual = {"name": "office-home", "root": str(root), "set": ("batch_size=16",)}
    assert bench.run(arguments(**usual, combos="all")) == 0
    assert bench.run(arguments(**usual, combos="art:real_world", methods="proud,erm")) == 0
    rows = rows_of(arguments())
    assert [(row["labeled"], row["test"]) for row in rows[:12]] == PUBLISHED["office-home"].combos
    assert [row["method"] for row in rows[12:]] == ["proud"]
    assert rows[0]["images"]["clipart"] == 10  # the test domain: all its images
    assert rows[0]["config"]["method_config"]["weight_decay"] == 0.0001
    out = capsys.readouterr().out
    assert "### Office-Home" in out and "ProUD (published)" in out and "Ar•/Rw*" in out


def test_digits_dg_continues_although_its_folder_has_moved(arguments: Make, tmp_path: Path) -> None:
    old, new = tmp_path / "before", tmp_path / "after"
    for seed, domain in enumerate(PUBLISHED["digits-dg"].domains):
        write_domains(old / "digits_dg" / domain, ("train", "val"), ["0", "1"], 4, side=16, seed=seed)
    usual = {"name": "digits-dg", "combos": "syn:svhn", "epochs": 8, "note": "made up"}
    assert work_on(arguments(**usual, root=str(old)), Diary(), deadline=after(8)).stopped == "time"
    assert (Path(arguments().out) / "runs" / "erm-syn-svhn-1" / "run.json").exists()
    assert not (Path(arguments().out) / "results.jsonl").exists()
    old.rename(new)
    assert bench.run(arguments(**usual, root=str(new))) == 0
    (row,) = read_rows(Path(arguments().out) / "results.jsonl")
    assert row["images"] == {"syn": 8, "mnist": 8, "mnist_m": 8, "svhn": 16}
    assert row["command"].startswith("proud bench digits-dg --root ROOT") and str(tmp_path) not in str(row)


def test_a_folder_is_the_benchmark_by_its_layout_not_by_its_name(
    arguments: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_domains(tmp_path / "real" / "pacs", tuple(PUBLISHED["pacs"].domains), ["dog", "elephant"], 4)
    write_domains(tmp_path / "other" / "pacs", ("one", "two", "three", "four"), ["a", "b"], 4)
    for folder, known in (("real", True), ("other", False)):
        monkeypatch.chdir(tmp_path / folder)
        data = prepare(arguments(name="pacs", combos="all"))[1].data
        assert data == "pacs" if known else data.startswith("pacs ")
