"""The tables of real sites, from made-up results and from one small run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image

from proud.config import Options
from proud.data.catalog import Catalog
from proud.data.folder import scan_folder
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task, write_folders

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import real_sites
import real_sites_scores as scores
import real_sites_tables as tables
import site_pictures
import table_text

LABS = ["barcelona", "bccd", "cellavision", "tecom"]


def rows_for(levels: dict[str, float], seeds: tuple[int, ...] = (1, 2)) -> list[dict[str, Any]]:
    """All 12 combinations; each site is a point easier than the one before, and each seed two points."""
    rows = []
    for method, level in levels.items():
        for labeled in LABS:
            for test in (site for site in LABS if site != labeled):
                for seed in seeds:
                    recall = level + 0.01 * LABS.index(test) + 0.02 * seed
                    row = {"method": method, "labeled": labeled, "test": test, "seed": seed, "domains": LABS}
                    row |= {"test_accuracy": 0.9, "test_recall": [recall - 0.1, None, recall + 0.1]}
                    rows.append(row | {"images": dict.fromkeys(LABS, 50), "commit": "abc", "device": "cpu"})
    return rows


def lines_of(text: str) -> dict[str, list[str]]:
    """First cell → the others."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in lines}


def test_methods_by_the_mean_of_the_class_recalls() -> None:
    benches = {"wbc": rows_for({"erm-noisemix": 0.5, "proud-plus": 0.6}), "wbc-lite2": rows_for({"erm": 0.4}, (1,))}
    found = lines_of(scores.methods_table(benches, "barcelona", scores.balanced))
    assert found["method"][:3] == ["bccd (50)", "cellavision (50)", "tecom (50)"]
    assert found["proud-plus"] == ["64 ±1", "65 ±1", "66 ±1", "65.0", "+10.0", "64.3"]
    assert found["erm, lite2"][:1] == ["43"]
    large = [row | {"images": dict.fromkeys(LABS, 5000)} for row in benches["wbc"]]
    assert lines_of(scores.methods_table({"wbc": large}, "barcelona", scores.balanced))["proud-plus"][0] == "64.0 ±1.4"
    part = [row for row in benches["wbc"] if row["test"] != "bccd"]
    assert lines_of(scores.methods_table({"wbc": part}, "barcelona", scores.balanced))["proud-plus"][-3:] == ["–"] * 3


def test_all_combinations_with_the_lowest_and_the_least_gain() -> None:
    rows = rows_for({"erm-noisemix": 0.5, "proud-plus": 0.55})
    for row in rows:
        row["test_accuracy"] = fmean(recall for recall in row["test_recall"] if recall is not None)
        if (row["method"], row["labeled"], row["test"]) == ("proud-plus", "tecom", "barcelona"):
            row["test_accuracy"] -= 0.1
    found = lines_of(scores.all_cells_table({"rsscn7": rows}, scores.accuracy))
    assert found["proud-plus"][1:] == ["48.0 (tecom → barcelona)", "+4.2", "−5.0"]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder of one's own."""
    for module in (table_text, scores, tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    return tmp_path


def test_what_is_not_measured_is_said_with_its_command(results: Path) -> None:
    for name, make in tables.TABLES.items():
        text = make()
        assert "Not measured yet: `" in text if name != "real-targets" else text.count("not yet") == 6


def test_targets_are_met_or_missed(results: Path) -> None:
    levels = {"erm-noisemix": 0.5, "fixmatch": 0.62, "proud-plus": 0.6}
    (results / "wbc.jsonl").write_text("\n".join(map(json.dumps, rows_for(levels))))
    sites = [
        {"verdict": "sound", "estimate": {"accuracy": x, "low": x - 0.1, "high": x + 0.1}, "accuracy": y}
        for x, y in ((0.5, 0.4), (0.7, 0.65), (0.9, 0.8), (0.8, 0.99))
    ]
    about = {"command": "c", "commit": "abc", "device": "cpu"}
    for data, part in (("wbc", sites[:2]), ("rsscn7", sites[2:])):
        made = {"data": data, "runs": [{"sites": part}, {"sites": []}], **about}
        (results / f"{data}-runs.json").write_text(json.dumps(made))
    found = lines_of(tables.targets_table())
    assert found["`wbc`, labels of barcelona, mean of class recalls, proud-plus − erm-noisemix"] == [
        "10.0",
        "≥ 5",
        "met",
    ]
    assert found["`wbc`: proud-plus − best other method"] == ["-2.0", "≥ 0", "**missed**"]
    assert found["verdicts, Spearman over all sites of both sets"] == ["0.80", "≥ 0.7", "met"]
    text = tables.TABLES["real-verdicts"]()
    assert (
        "over 4 sites: 0.80. The 90 % interval contains the truth in 75 %" in text and "| sound | 4 | 40–99 |" in text
    )


def test_a_run_is_described_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = toy_task(per_class=8)
    settings = toy_settings("proud", epochs=2, pretrain_epochs=2)
    train(toy_run("proud", task), settings, Options(out=str(tmp_path / "run"), quiet=True, device="cpu"), data=task)
    (folder,) = real_sites.find_runs([tmp_path])
    run = real_sites.described(folder)
    assert sum(map(sum, run["confusion"])) == 32 and [sum(row) for row in run["confusion"]] == [8] * 4
    right = sum(run["confusion"][k][k] for k in range(4))
    assert run["test_scores"]["balanced_accuracy"]["value"] == pytest.approx(right / 32)
    assert {site["name"] for site in run["sites"]} == {"hidden 1", "hidden 2"} and run["trust"]["coverage"] is not None
    monkeypatch.setattr(tables, "CENTRAL", "labeled")
    monkeypatch.setattr(tables, "OURS", "proud")
    about = {"data": "toy", "coverage": 0.9, "risk": 0.05, "command": "c", "commit": "a", "device": "d"}
    result = about | {"runs": [run, run]}
    lines = [line.split(" | ") for line in tables.recalls_table(result, "x").splitlines() if line.startswith("| test")]
    assert [line[1] for line in lines] == list(task.training.classes) and all("n = 8)" in line[3] for line in lines)
    assert "n = 32)" in tables.scores_table(result, "x") and "proud, seed" in tables.scores_table(result, "x")
    wrong = sum(run["confusion"][0]) - run["confusion"][0][0]
    assert ("across as" in tables.confusion_table(result, "x", most=12)) == bool(wrong)
    assert "test" in tables.unseen_trust_table(result, "x") and "hidden" not in tables.unseen_trust_table(result, "x")


def test_the_picture_has_a_row_per_site_and_a_column_per_class(tmp_path: Path) -> None:
    catalog: Catalog = scan_folder(write_folders(tmp_path / "sites", {"north": 0, "south": 1}, per_class=2))
    for path in (tmp_path / "sites" / "south" / "down").iterdir():
        path.unlink()
    catalog = scan_folder(tmp_path / "sites")
    chosen = site_pictures.draw(catalog, tmp_path / "out.png", seed=1)
    assert [[place.rpartition("/")[0] for place in row] for row in chosen] == [
        ["north/across", "north/checks", "north/down", "north/plain"],
        ["south/across", "south/checks", "", "south/plain"],
    ]
    with Image.open(tmp_path / "out.png") as image:
        assert image.width == 2 * image.height
