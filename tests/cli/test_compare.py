"""`proud compare`: a table of images on which two models disagree, and a verdict once it is filled in."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import ONE_EPOCH, train
from proud.cli import main as cli
from proud.errors import UserError
from proud.files import write_table
from proud.model.compare import COLUMNS, disagreement
from proud.model.load import load_model
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
    write_table(table, COLUMNS, [[row[name] for name in COLUMNS] for row in rows])
    return rows


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


def test_bad_tables_are_refused(
    trained: Path, weak: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "c.csv"
    compare(trained, weak, site, "--out", table)
    with pytest.raises(UserError, match="exists: choose another --out or add --overwrite"):
        compare(trained, weak, site, "--out", table)
    with pytest.raises(UserError, match="No label is filled in"):
        compare(trained, weak, site, "--labels", table)
    rows = fill_in(table)
    cells = [[row[name] for name in COLUMNS] for row in rows]
    write_table(table, COLUMNS, [[*cells[0][:2], "chekcs", cells[0][3]], *cells[1:]])
    with monkeypatch.context() as patch, pytest.raises(UserError, match="line 2: the class 'chekcs' is unknown"):
        patch.setattr("proud.cli.compare.disagreement", None)  # before any image is classified
        compare(trained, weak, site, "--labels", table)
    write_table(table, COLUMNS, [[*cells[0][:3], "0" * 64], *cells[1:], cells[1]])
    with pytest.raises(UserError, match=r"(?s)was not drawn.*is listed before, in line 3"):
        compare(trained, weak, site, "--labels", table)
    write_table(table, COLUMNS, [[*row[:3], row[3][::-1]] for row in cells])
    with pytest.raises(UserError, match=r"No image of .* was drawn from these models and images"):
        compare(trained, weak, site, "--labels", table)
    write_table(table, COLUMNS, [[*row[:3], ""] for row in cells])  # found by their paths
    assert compare(trained, weak, site, "--labels", table) == 0
    write_table(table, COLUMNS, cells[:2])
    with pytest.raises(UserError, match="has 2 labels; at least 5 are needed"):
        compare(trained, weak, site, "--labels", table)


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
