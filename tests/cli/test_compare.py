"""`proud compare`: a table of images on which two models disagree, and a verdict once it is filled in."""

from __future__ import annotations

import csv
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import ONE_EPOCH, train
from proud.cli import main as cli
from proud.errors import UserError
from proud.files import json_file, write_table
from proud.held import HeldFolder
from proud.model.compare import COLUMNS, disagreement
from proud.model.load import load_model
from proud.model.verdict import read_comparison
from proud.stamps import sealed
from toy import write_folders


@pytest.fixture(scope="module")
def weak(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weak") / "x"
    assert train(data, out, *ONE_EPOCH, "--seed", "3") == 0
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folders(tmp_path_factory.mktemp("new"), {"site": 3}, per_class=30) / "site"


def compare(*words: object) -> int:
    return cli.run(["compare", *map(str, words), "--device", "cpu"])


def fill_in(table: Path) -> list[dict[str, str]]:
    """With the class that is the folder's name."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = Path(row["path"]).parent.name
    write_rows(table, rows)
    return rows


def write_rows(table: Path, rows: list[dict[str, str]]) -> None:
    write_table(table, COLUMNS, [[row[name] for name in COLUMNS] for row in rows])


def test_fifty_labels_name_the_better_model(
    trained: Path, weak: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "compare.csv"
    assert compare(trained, weak, site, "--out", table) == 0
    told = capsys.readouterr().out
    apart = re.search(r"They give different labels to (\d+) of", told)
    rows = fill_in(table)
    assert apart and ("All of them →" in told) == (int(apart[1]) == len(rows))
    assert 0 < len(rows) <= 50 and list(rows[0]) == COLUMNS
    assert compare(trained, weak, site, "--labels", table) == 0
    told = capsys.readouterr().out
    truth = np.array([path.parent.name for path in sorted(site.rglob("*.png"))])
    right = [np.mean(load_model(run, "cpu").predict(site) == truth) for run in (trained, weak)]
    assert right[0] > right[1] + 0.1  # otherwise this test shows nothing
    assert "Verdict: A is better here" in told
    assert compare(weak, trained, site, "--labels", table) == 0
    assert "Verdict: B is better here" in capsys.readouterr().out


def test_the_sample_is_of_disagreements_and_independent_of_names(
    trained: Path, weak: Path, site: Path, tmp_path: Path
) -> None:
    found = disagreement(trained, weak, site, most=20, device="cpu")
    assert len(found.sample) == 20 < len(found.files)
    assert (found.first != found.second).all()
    for number, path in enumerate(sorted(site.rglob("*.png"), reverse=True)):
        shutil.copy(path, tmp_path / f"{number:03d}.png")
    again = disagreement(trained, weak, tmp_path, most=20, device="cpu")
    drawn = [{each.contents[row] for row in each.sample.tolist()} for each in (found, again)]
    assert drawn[0] == drawn[1]
    swapped = disagreement(weak, trained, site, most=20, device="cpu")
    assert drawn[0] == {swapped.contents[row] for row in swapped.sample.tolist()}


def test_a_page_shows_the_drawn_images_without_the_models_answers(
    trained: Path, weak: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "compare.csv"
    assert compare(trained, weak, site, "--out", table) == 0
    assert "What they look like:" in capsys.readouterr().out
    page = (tmp_path / "compare.html").read_text()
    rows = fill_in(table)
    assert page.count("data:image") == len(rows) and f"{len(rows)} images to label" in page
    assert "classified as" not in page and "guess" not in page
    for row in rows:
        assert Path(row["path"]).name in page
    table.unlink()
    with pytest.raises(UserError, match=r"compare\.html exists"):
        compare(trained, weak, site, "--out", table)
    assert not table.exists()


def test_equal_models_need_no_labels(
    trained: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(trained, trained, site, "--out", tmp_path / "c.csv") == 0
    assert "nothing to label" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_bad_tables_are_refused(trained: Path, weak: Path, site: Path, tmp_path: Path) -> None:
    table = tmp_path / "c.csv"
    compare(trained, weak, site, "--out", table)
    with pytest.raises(UserError, match="exists: choose another --out or add --overwrite"):
        compare(trained, weak, site, "--out", table)
    with pytest.raises(UserError, match="No label is filled in"):
        compare(trained, weak, site, "--labels", table)
    rows = fill_in(table)
    cells = [[row[name] for name in COLUMNS] for row in rows]
    write_table(table, COLUMNS, [[*cells[0][:2], "chekcs", cells[0][3]], *cells[1:]])
    with pytest.raises(UserError, match="line 2: the class 'chekcs' is unknown"):
        compare(trained, weak, site, "--labels", table)
    twice = [*cells[1][:2], "plain" if cells[1][2] != "plain" else "checks", cells[1][3]]
    write_table(table, COLUMNS, [[*cells[0][:3], "0" * 64], *cells[1:], twice])
    with pytest.raises(UserError, match=rf"(?s)was not drawn.*but the same image in line 3 is '{cells[1][2]}'"):
        compare(trained, weak, site, "--labels", table)
    write_table(table, COLUMNS, [[*row[:3], row[3][::-1]] for row in cells])
    with pytest.raises(UserError, match=r"No image of .*c\.csv is in .*c\.json: name the table"):
        compare(trained, weak, site, "--labels", table)
    write_table(table, COLUMNS, [[*row[:3], ""] for row in cells])  # found by their paths
    assert compare(trained, weak, site, "--labels", table) == 0
    write_table(table, COLUMNS, cells[:2])
    with pytest.raises(UserError, match="has 2 labels; at least 5 are needed"):
        compare(trained, weak, site, "--labels", table)


def test_copies_count_as_drawn_images(
    trained: Path, weak: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies = tmp_path / "copies"
    for number in range(2):
        shutil.copytree(site, copies / str(number))
    once = disagreement(trained, weak, site, device="cpu")
    table = tmp_path / "c.csv"
    assert compare(trained, weak, copies, "--out", table) == 0
    rows = fill_in(table)
    times = Counter(row["content"] for row in rows)
    assert max(times.values()) > 1 and len(rows) == min(50, 2 * len(once.files))
    capsys.readouterr()
    assert compare(trained, weak, copies, "--labels", table) == 0
    whole = capsys.readouterr().out
    truth = {content: path.parent.name for path, content in zip(once.files, once.contents, strict=True)}
    answers = zip(once.contents, once.first.tolist(), once.second.tolist(), strict=True)
    right = np.array([[times[c] * (once.classes[k] == truth[c]) for k in pair] for c, *pair in answers]).sum(0)
    assert f"Of {len(rows)} labeled images, A is right on {right[0]} and B on {right[1]}." in whole

    seen: set[str] = set()
    for row in rows:  # one label per content serves its copies
        row["label"] = "" if row["content"] in seen else row["label"]
        seen.add(row["content"])
    write_rows(table, rows)
    assert compare(trained, weak, copies, "--labels", table) == 0
    assert capsys.readouterr().out == whole
    for row in rows:
        row["label"] = row["label"] or ("plain" if truth[row["content"]] != "plain" else "checks")
    write_rows(table, rows)
    with pytest.raises(UserError, match=r"line \d+: .* is '\w+', but the same image in line \d+ is '\w+'"):
        compare(trained, weak, copies, "--labels", table)


def test_the_verdict_reads_no_image(
    trained: Path, weak: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, table = tmp_path / "site", tmp_path / "c.csv"
    shutil.copytree(site, folder)
    compare(trained, weak, folder, "--out", table)
    fill_in(table)
    capsys.readouterr()
    told = []
    for change in (lambda: None, lambda: next(folder.rglob("*.png")).unlink(), lambda: shutil.rmtree(folder)):
        change()
        assert compare(trained, weak, folder, "--labels", table) == 0
        told.append(capsys.readouterr().out)
    assert "Verdict: A is better here" in told[0] and "They give different labels to" in told[0]
    assert told[0] == told[1] == told[2]
    with pytest.raises(UserError, match=r"a folder site, not .*other: name that one"):
        compare(trained, weak, tmp_path / "other", "--labels", table)


def test_the_record_says_what_was_drawn(trained: Path, weak: Path, site: Path, tmp_path: Path) -> None:
    table = tmp_path / "c.csv"
    compare(trained, weak, site, "--out", table)
    found, again = read_comparison(tmp_path / "c.json"), disagreement(trained, weak, site, device="cpu")
    assert [each["path"] for each in found["drawn"]] == [row["path"] for row in fill_in(table)]
    assert (found["images"], found["disagreements"]) == (120, len(again.files))
    assert found["strata"] == [len(rows) for rows in again.strata]
    for row, each in zip(again.sample.tolist(), found["drawn"], strict=True):
        assert row in again.strata[each["stratum"]]
        assert each["content"] == again.contents[row]
        answers = [again.classes[numbers[row]] for numbers in (again.first, again.second)]
        assert [each["first"], each["second"]] == answers


def test_the_verdict_needs_the_record_and_the_same_models(
    trained: Path, weak: Path, site: Path, data: Path, tmp_path: Path
) -> None:
    table, record = tmp_path / "c.csv", tmp_path / "c.json"
    compare(trained, weak, site, "--out", table)
    fill_in(table)
    assert train(data, tmp_path / "third", *ONE_EPOCH, "--seed", "4") == 0
    for pair in ((trained, tmp_path / "third"), (weak, weak)):
        with pytest.raises(UserError, match=r"which had other weights than those in .*: name those models, or draw"):
            compare(*pair, site, "--labels", table)
    with pytest.raises(UserError, match="nowhere holds no model"):
        compare(trained, tmp_path / "nowhere", site, "--labels", table)
    shutil.copytree(trained, tmp_path / "moved")
    assert compare(tmp_path / "moved", weak / "model", site, "--labels", table) == 0
    whole = record.read_bytes()
    for damaged in (whole[:-20], whole.replace(b'"images": 120', b'"images": 999'), b"[]", b""):
        record.write_bytes(damaged)
        with pytest.raises(UserError, match=r"c\.json is damaged, or not written by .*: restore it, or draw again"):
            compare(trained, weak, site, "--labels", table)
    record.unlink()
    with pytest.raises(UserError, match=r"c\.json is missing\. .*put it back beside the table"):
        compare(trained, weak, site, "--labels", table)


@pytest.mark.parametrize(
    "change",
    [
        {"images": 2},
        {"disagreements": 4},
        {"strata": [3, 0]},
        {"strata": [2]},
        {"classes": ["plain"]},
        {"drawn": []},
        {"images": -1},
        {"format": "proud-compare-0"},
        {"first": {"name": "x"}},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    drawn = [
        {"path": str(stratum), "content": "0" * 64, "stratum": stratum, "first": "plain", "second": "dots"}
        for stratum in (0, 1)
    ]
    models = {which: {"name": which, "weights": "1" * 64} for which in ("first", "second")}
    good = {"format": "proud-compare-1", "folder": "site", **models, "classes": ["dots", "plain"], "drawn": drawn}
    good |= {"images": 10, "disagreements": 3, "strata": [2, 1]}
    path = tmp_path / "c.json"
    path.write_bytes(json_file(sealed(good)))
    assert read_comparison(path)["strata"] == [2, 1]
    path.write_bytes(json_file(sealed(good | change)))
    with pytest.raises(UserError, match="is damaged"):
        read_comparison(path)


def test_other_files_are_never_replaced(trained: Path, weak: Path, site: Path, tmp_path: Path) -> None:
    table, record, own = tmp_path / "c.csv", tmp_path / "c.json", tmp_path / "own.json"
    for name in ("c.html", "c.HTML", "c.json"):
        with pytest.raises(UserError, match=r"give it another ending, e\.g\. --out .*c\.csv"):
            compare(trained, weak, site, "--out", tmp_path / name, "--overwrite")
    record.write_text("{}")
    with pytest.raises(UserError, match=r"c\.json exists: choose another --out or add --overwrite"):
        compare(trained, weak, site, "--out", table)
    with pytest.raises(UserError, match=r"c\.json is no record of `proud compare`: choose another --out"):
        compare(trained, weak, site, "--out", table, "--overwrite")
    assert record.read_text() == "{}" and not table.exists()
    record.unlink()
    record.symlink_to(own)  # leads nowhere
    assert compare(trained, weak, site, "--out", table) == 0
    assert not own.exists() and not record.is_symlink()
    record.rename(own)
    record.symlink_to(own)
    before = own.read_bytes()
    assert compare(weak, trained, site, "--out", table, "--overwrite") == 0
    assert own.read_bytes() == before != record.read_bytes() and not record.is_symlink()


def test_a_failure_leaves_the_earlier_files(
    trained: Path, weak: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "c.csv"
    compare(trained, weak, site, "--out", table)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_part = HeldFolder.write_part

    def fails(self: HeldFolder, part: str, name: str, content: bytes) -> None:
        if name == "c.csv":
            raise UserError("disk full")
        write_part(self, part, name, content)

    monkeypatch.setattr(HeldFolder, "write_part", fails)
    with pytest.raises(UserError, match="disk full"):
        compare(weak, trained, site, "--out", table, "--overwrite")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_cannot_be_compared_is_refused_and_nothing_written(
    trained: Path, site: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        compare(trained, trained, site / "nowhere", "--out", tmp_path / "c.csv")
    with pytest.raises(UserError, match="no such file"):
        compare(trained, trained, site, "--labels", tmp_path / "none.csv")
    shutil.copytree(data, tmp_path / "data")
    for place in (tmp_path / "data").glob("*/plain"):
        place.rename(place.with_name("dots"))
    assert train(tmp_path / "data", tmp_path / "other", *ONE_EPOCH) == 0
    with pytest.raises(UserError, match=r"different classes \(dots, plain\)"):
        compare(trained, tmp_path / "other", site, "--out", tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()
