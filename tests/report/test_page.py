"""The page of a real run: complete, self-contained, safe with any name; existing files are kept."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from proud.cli import main as cli
from proud.errors import UserError
from proud.report.page import write_report
from proud.report.run_tables import paired_difference
from proud.report.sources import read_sources

SECTIONS = (
    "data",
    "results",
    "sites",
    "curves",
    "features",
    "pairs",
    "certain",
    "confusion",
    "reliability",
    "settings",
)


def test_every_part_is_there(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    for section in SECTIONS:
        assert f'<section id="{section}">' in text, section
    for word in ("proud without PML", "epoch 1", "epoch 3", "labeled", "mixed", "λ", "ε"):
        assert word in text, word


def test_the_headline_has_no_decimals_of_few_images(report: Path) -> None:
    numbers = re.findall(r"95 % interval (\S+) %, n = (\d+)", report.read_text(encoding="utf-8"))
    assert numbers and all(re.fullmatch(r"\d+–\d+", ends) and int(images) < 100 for ends, images in numbers)


def test_the_page_is_self_contained(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    addresses = re.findall(r'(?:src|srcset|href)="([^"]*)"', text)
    assert len(addresses) > 50
    for address in addresses:
        assert address.startswith(("data:image/", "#", "report_files/")), address[:80]
        if address.startswith("report_files/"):
            assert (report.parent / address).is_file(), address
    assert "url(" not in text
    assert "@import" not in text


def test_names_are_escaped(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_figures_and_tables_are_files_too(report: Path) -> None:
    files = report.with_name("report_files")
    by_kind = {kind: {path.stem for path in files.glob(f"*.{kind}")} for kind in ("png", "pdf", "csv", "tex")}
    assert by_kind["png"] == by_kind["pdf"] != set()
    assert by_kind["csv"] == by_kind["tex"] != set()
    for name in ("curves", "features", "pairs-first", "pairs-last", "certain", "confusion", "reliability"):
        assert any(stem.startswith(name) for stem in by_kind["png"]), name
    for path in files.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for path in files.glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")
    listed = json.loads((files / "made-by-proud-report.json").read_text())["files"]
    assert sorted(listed) == sorted(path.name for path in files.iterdir())


def test_nothing_is_overwritten_silently(report: Path, tmp_path: Path) -> None:
    source = [report.parent]  # never read: the target is checked first
    with pytest.raises(UserError, match="exists"):
        write_report(source, report)
    with pytest.raises(UserError, match="earlier report"):
        write_report(source, report.with_suffix(".htm"))
    (tmp_path / "thesis_files").mkdir()
    (tmp_path / "thesis_files" / "mine.png").write_bytes(b"mine")
    with pytest.raises(UserError, match="not from a report"):
        write_report(source, tmp_path / "thesis.html", overwrite=True)
    with pytest.raises(UserError, match=r"end in \.html"):
        write_report(source, tmp_path / "run.json")
    with pytest.raises(UserError, match="is a folder"):
        write_report(source, tmp_path)


def test_an_earlier_report_is_replaced_on_request(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in bench_rows()))
    assert cli.run(["report", str(results), "--out", str(out)]) == 0
    (tmp_path / "r_files" / "mine.txt").write_text("mine")
    assert cli.run(["report", str(results), "--out", str(out), "--overwrite"]) == 0
    assert (tmp_path / "r_files" / "mine.txt").read_text() == "mine"
    text = out.read_text()
    assert "ProUD (published)" in text
    assert "proud (ours)" in text
    assert (tmp_path / "r_files" / "table-pacs-1.tex").read_text().startswith(r"\begin{table}")


def bench_rows() -> list[dict[str, object]]:
    row = {"format": "proud-result-1", "bench": "pacs", "method": "proud", "labeled": "photo", "test": "sketch"}
    return [
        row
        | {"unlabeled": ["art_painting", "cartoon"]}
        | {"seed": seed, "test_accuracy": 0.7, "domains": ["photo", "art_painting", "cartoon", "sketch"]}
        | {"seconds": 60.0, "commit": "abc", "device": "cpu", "config": {"method": "proud"}}
        for seed in (1, 2)
    ]


def test_wrong_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_sources([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="neither a run"):
        read_sources([tmp_path])
    with pytest.raises(UserError, match="Name the runs"):
        cli.run(["report"])


@pytest.mark.usefixtures("without_figures")
def test_an_unfinished_run_has_a_report(runs: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(runs / "whole", half)
    for name in ("result.json", "outputs.safetensors", "snapshots/middle.safetensors", "snapshots/last.safetensors"):
        (half / name).unlink()
    (half / "manifest.json").unlink()
    text = write_report([half], tmp_path / "r.html").read_text()
    assert "not finished" in text
    assert 'id="confusion"' not in text


def test_runs_without_a_finished_epoch_are_skipped(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "whole", tmp_path / "runs" / "done")
    shutil.copytree(runs / "whole", tmp_path / "runs" / "new")
    (tmp_path / "runs" / "new" / "records.jsonl").unlink()
    assert [run.folder.name for run in read_sources([tmp_path / "runs"])[0]] == ["done"]
    with pytest.raises(UserError, match="no finished epoch"):
        read_sources([tmp_path / "runs" / "new"])


def test_accuracies_have_intervals_and_runs_are_compared_in_pairs(report: Path, runs: Path) -> None:
    text = report.read_text(encoding="utf-8")
    sources, _ = read_sources([runs / "whole", runs / "no-pml"])
    images = sources[0].domains[sources[0].config.test]["images"]
    assert f", n = {images})" in text and f"n = {images}</div>" in text
    assert "Comparison of runs" in text
    right = [run.outputs["test/logits"].argmax(1) == run.outputs["test/labels"] for run in sources]
    difference = paired_difference(*sources)
    assert difference is not None and difference.value == pytest.approx(right[0].mean() - right[1].mean())
    assert difference.difference in text
    sources[1].metadata["task"]["content"][sources[1].config.test] = "other images"
    assert paired_difference(*sources) is None


@pytest.mark.usefixtures("without_figures")
def test_a_full_disk_leaves_the_earlier_report_as_it_was(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write_report([runs / "whole"], tmp_path / "r.html")
    (tmp_path / "r_files" / "mine.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    real, left = os.write, [0]

    def fill(handle: int, content: bytes) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, content)

    for room in (0, 1, 3):
        left[0] = room
        with monkeypatch.context() as disk:
            disk.setattr(os, "write", fill)
            with pytest.raises(UserError, match=r"No space left on device\. What was written before is intact"):
                write_report([runs / "whole"], page, overwrite=True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    write_report([runs / "whole"], page, overwrite=True)
    assert (tmp_path / "r_files" / "mine.txt").read_text() == "mine"


def test_a_finished_run_without_its_manifest_is_not_taken_for_an_unfinished_one(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "whole", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest.json is missing. Restore it from a copy, or train again"):
        read_sources([tmp_path / "run"])
