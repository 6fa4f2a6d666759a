from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

import pytest

from proud.bench.plan import make_plan
from proud.bench.results import FORMAT, ResultRow, line_of, portable
from proud.cli import bench
from proud.cli.flags.bench import BenchArguments
from proud.config import RunConfig
from proud.errors import UserError
from proud.report.formats import csv_text, latex, markdown
from proud.report.published import PUBLISHED
from proud.report.tables import make_tables, write_tables


def rows_for(
    name: str, methods: Sequence[str], score: Callable[[str, int, int], float], **options: Any
) -> list[ResultRow]:
    """Synthetic results; `score(method, place of the combination, seed)` is in percent."""
    domains = tuple(PUBLISHED[name].domains)
    combos = PUBLISHED[name].combos
    seeds = options.pop("seeds", (2022,))
    run = RunConfig(data=name, root="r", model="digits", weights="none")
    plan = make_plan(run, name, domains, methods=methods, seeds=seeds, **options)
    rows = []
    for job in plan.jobs:
        value = score(job.run.method, combos.index((job.run.labeled, job.run.test)), job.run.seed)
        row = {"format": FORMAT, "bench": name, "note": plan.note, **job.key._asdict(), "domains": list(domains)}
        row |= {"test_accuracy": value / 100, "seconds": 1.0, "commit": "abc", "device": "cpu: x"}
        rows.append(row | {"config": portable(plan, job)})
    return rows


def test_averages_spreads_and_differences() -> None:
    rows = rows_for("pacs", ["proud", "erm"], lambda m, i, s: 60 + i + (s - 2023) * 2, seeds=(2022, 2023, 2024))
    (table,) = make_tables("pacs", rows)
    ours = next(line for line in table.lines if line.label == "proud (ours)")
    cells = [60.0 + i for i in range(12)]
    assert [cell and cell.mean for cell in ours.summary.cells] == pytest.approx(cells)
    first = ours.summary.cells[0]
    assert first and first.spread == pytest.approx(stdev([58, 60, 62])) and first.seeds == (2022, 2023, 2024)
    assert ours.average == pytest.approx(fmean(cells)) and ours.std == pytest.approx(pstdev(cells))
    assert ours.difference == pytest.approx(fmean(cells) - 75.1)
    assert ours.summary.spread == pytest.approx(2.0)  # the three seeds' averages: 63.5, 65.5, 67.5
    assert f"{fmean(cells):.1f} ±2.0" in markdown(table) and rf"{fmean(cells):.1f} $\pm$2.0" in latex(table)
    head, *body = csv.reader(csv_text([table]).splitlines())
    row = dict(zip(head, body[-1], strict=True))
    assert row["avg seed std"] == "2.0" and row["photo:sketch seeds"] == "3"
    (some,) = make_tables("pacs", [row for row in rows if row["seed"] == 2022 or row["test"] != "photo"])
    assert all(line.summary.spread is None for line in some.lines)
    assert ours.summary.worst == (("photo", "art_painting"), pytest.approx(60.0))
    development = (1, 2, 4, 8, 9)  # P•/C*, P•/S*, A•/C*, C•/S*, S•/P*
    elsewhere = [value for i, value in enumerate(cells) if i not in development]
    assert ours.summary.average_elsewhere == pytest.approx(fmean(elsewhere))
    assert next(line for line in table.lines if line.label == "erm (ours)").difference is None
    assert len(table.lines) == 8 + 2


def test_a_part_of_a_table_is_compared_with_the_same_part() -> None:
    rows = rows_for("digits-dg", ["proud"], lambda m, i, s: 70.0, combos="mnist:mnist_m,syn:svhn")
    (table,) = make_tables("digits-dg", rows)
    ours = table.lines[-1]
    assert not ours.summary.complete
    assert ours.difference == pytest.approx(70 - (70.3 + 74.4) / 2)


def test_markdown_csv_and_latex(tmp_path: Path) -> None:
    note = "rebuilt, SYN stand-in"
    rows = rows_for("digits-dg", ["proud", "erm"], lambda m, i, s: 50.0 + i, combos="all", note=note)
    text = write_tables("digits-dg", rows[:-2], tmp_path / "results")
    assert text == (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "### Digits-DG (rebuilt, SYN stand-in)" in text and "Ours: rebuilt, SYN stand-in. The published rows" in text
    assert all(f"| {cell} † |" in text for cell in ("Sy•/Sv*", "Sv•/Mn*", "Mn•/Sv*")) and text.count(" † |") == 3
    assert "| EID (published) | 51.6 | 37.3 |" in text and "(11/12)" in text and "Avg −†" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    read = list(csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text(encoding="utf-8"))))
    assert len(read) == 10 and read[-1]["method"] == "erm (ours)" and float(read[-2]["mnist:mnist_m"]) == 50
    assert read[-2]["syn:svhn"] == "" and read[7]["avg"] == "73.6"
    tex = (tmp_path / "results.tex").read_text(encoding="utf-8")
    body = [line for line in tex.splitlines() if " & " in line]
    assert len({sum(_columns(cell) for cell in line.split(" & ")) for line in body}) == 1
    assert tex.isascii() and r"\multicolumn{3}{c|}{Mm$^\bullet$}" in tex and tex.count("{") == tex.count("}")


def _columns(cell: str) -> int:
    return 3 if "multicolumn{3}" in cell else 1


def test_ablation() -> None:
    loss = {"proud": 0.0, "proud-no-udmix": 9.0, "proud-no-pml": 4.0}
    combos = "photo:cartoon,photo:sketch,sketch:photo,cartoon:sketch"
    rows = rows_for("pacs", list(loss), lambda m, i, s: 70 - loss[m], combos=combos)
    _, ablation = make_tables("pacs", rows)
    labels = [line.label for line in ablation.lines if not line.published]
    assert labels == [
        "proud (ours)",
        "proud-no-udmix (ours)",
        "proud-no-udmix Diff. (ours)",
        "proud-no-pml (ours)",
        "proud-no-pml Diff. (ours)",
    ]
    assert any(
        "w/o UDMix, mean over P•/C*, P•/S*, S•/P*: ours -9.0, published -11.0." in text for text in ablation.footer
    )
    assert any("w/o PML" in text and "ours -4.0, published -5.5" in text for text in ablation.footer)


def test_ablated_runs_are_compared_with_runs_of_the_same_seed() -> None:
    combos = "photo:cartoon,sketch:photo"
    height = {2022: 60, 2023: 80}
    whole = rows_for("pacs", ["proud"], lambda m, i, s: height[s] + 10 * (i > 1), combos=combos, seeds=(2022, 2023))
    part = rows_for("pacs", ["proud-no-pml"], lambda m, i, s: height[s] - 5 + 4 * (i > 1), combos=combos, seeds=(2022,))
    _, ablation = make_tables("pacs", whole + part)
    line = ablation.lines[-1]
    assert line.label == "proud-no-pml Diff. (ours)" and line.average == pytest.approx(-8)
    spread = pstdev([55, 59]) - pstdev([60, 70])
    assert line.std == pytest.approx(spread) and spread < 0
    assert f"| {spread:+.1f} |" in markdown(ablation)


def test_one_combination_has_no_spread() -> None:
    rows = rows_for("pacs", ["erm"], lambda m, i, s: 50.0, combos="photo:sketch")
    (table,) = make_tables("pacs", rows)
    assert table.lines[-1].std is None


def test_settings_are_not_mixed_and_repeated_lines_count_once() -> None:
    rows = rows_for("pacs", ["erm"], lambda m, i, s: 50.0, combos="photo:sketch")
    (table,) = make_tables("pacs", rows + json.loads(json.dumps(rows)))
    cell = table.lines[-1].summary.cells[2]
    assert cell and cell.seeds == (2022,)
    others = rows_for("pacs", ["erm"], lambda m, i, s: 50.0, combos="photo:cartoon", overrides={"lr": "0.5"})
    with pytest.raises(UserError, match="other settings"):
        make_tables("pacs", rows + others)
    with pytest.raises(UserError, match="no results of pacs"):
        make_tables("pacs", [])


def test_a_setting_that_a_result_does_not_name_has_its_default() -> None:
    rows = rows_for("pacs", ["proud"], lambda m, i, s: 50.0, combos="photo:sketch,photo:cartoon")
    rows[0]["config"]["method_config"]["alpha"] = 0.5
    rows[1]["config"]["method_config"].pop("alpha", None)
    make_tables("pacs", rows)
    rows[0]["config"]["method_config"]["alpha"] = 0.7
    with pytest.raises(UserError, match=r"alpha: 0\.7 → 0\.5"):
        make_tables("pacs", rows)


def test_names_of_domains_cannot_break_the_files(tmp_path: Path) -> None:
    rows = rows_for("pacs", ["erm"], lambda m, i, s: 50.0, combos="photo:sketch")
    for row in rows:
        row |= {"bench": "own", "domains": ["=cmd()", "a|b", "<img>", "50%_x"], "labeled": "=cmd()", "test": "a|b"}
    text = write_tables("own", rows, tmp_path / "t")
    assert "<img>" not in text and "a\\|b" in text
    assert "'=cmd():a|b" in (tmp_path / "t.csv").read_text()
    assert r"50\%\_x" in (tmp_path / "t.tex").read_text()


def test_table_only_reads_results_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_for("pacs", ["proud"], lambda m, i, s: 80.0)
    half, rest = tmp_path / "pacs.jsonl", tmp_path / "more.jsonl"
    for path, part in ((half, rows[:6]), (rest, rows[6:])):
        path.write_bytes(b"".join(map(line_of, part)))
    assert bench.run(BenchArguments("pacs", table_only=True, results=(half, rest))) == 0
    assert "+4.9" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"pacs.jsonl", "more.jsonl"}  # of two files, beside neither
    merged = tmp_path / "new" / "merged"
    assert bench.run(BenchArguments("pacs", table_only=True, results=(half, rest), out=str(merged))) == 0
    assert {path.name for path in merged.iterdir()} == {"results.md", "results.csv", "results.tex"}
    (merged / "results.jsonl").write_bytes(line_of(rows[0]))
    with pytest.raises(UserError, match="has results of its own"):
        bench.run(BenchArguments("pacs", table_only=True, results=(half, rest), out=str(merged)))
    assert bench.run(BenchArguments("pacs", table_only=True, results=(half,))) == 0
    assert {path.suffix for path in tmp_path.glob("pacs.*")} == {".jsonl", ".md", ".csv", ".tex"}
    with pytest.raises(UserError, match="cannot be read"):
        bench.run(BenchArguments("pacs", table_only=True, out=str(tmp_path / "nothing")))


def test_results_that_contradict_each_other_are_refused() -> None:
    rows = rows_for("pacs", ["proud"], lambda m, i, s: 80.0)
    again = json.loads(json.dumps(rows))
    assert len(make_tables("pacs", rows + again)[0].lines) == len(make_tables("pacs", rows)[0].lines)
    again[3]["test_accuracy"] = 0.99
    for order in (rows + again, again + rows):
        with pytest.raises(UserError, match=r"two results of proud .* → .*, seed 2022: .* % and .* %\. Leave one"):
            make_tables("pacs", order)
    other = rows_for("pacs", ["proud"], lambda m, i, s: 80.0, overrides={"alpha": "1.0"})
    with pytest.raises(UserError, match=r"alpha: 0\.5 → 1\.0\nA row of a table is of one recipe"):
        make_tables("pacs", rows + other)


def test_results_of_other_images_are_refused_and_versions_of_code_counted() -> None:
    rows = rows_for("pacs", ["proud"], lambda m, i, s: 80.0, seeds=(2022, 2023))
    for row in rows:
        row |= {
            "content": dict.fromkeys(row["domains"], "x"),
            "images": dict.fromkeys(row["domains"], 10),
            "code": f"v{row['seed']}",
        }
    (table,) = make_tables("pacs", rows)
    assert any("2 versions of the method's code made these runs" in line for line in table.footer)
    without = [row | {"code": None} if row["seed"] == 2022 else row for row in rows]
    assert any("2 versions" in line for line in make_tables("pacs", without)[0].footer)
    rows[-1]["images"] = rows[-1]["images"] | {rows[-1]["labeled"]: 9}  # how many are held out may differ
    make_tables("pacs", rows)
    for key, value in (("images", dict.fromkeys(rows[0]["domains"], 9)), ("content", {"photo": "y"})):
        with pytest.raises(UserError, match=r"different images under the same name \(.*\)\. Show them in tables"):
            make_tables("pacs", [*rows[:-1], rows[-1] | {key: value}])


def test_a_folder_that_is_called_like_a_benchmark_is_not_it() -> None:
    rows = rows_for("pacs", ["erm"], lambda m, i, s: 80.0, data="pacs 0123456789ab")
    (table,) = make_tables("pacs", rows)
    assert [line.label for line in table.lines] == ["erm"] and not table.development
    with pytest.raises(UserError, match="some of a folder with that name"):
        make_tables("pacs", rows + rows_for("pacs", ["proud"], lambda m, i, s: 80.0))


def test_averages_of_some_cells_say_of_how_many() -> None:
    rows = [row for row in rows_for("pacs", ["erm"], lambda m, i, s: 10.0 * i) if row["labeled"] == "photo"]
    (table,) = make_tables("pacs", rows)
    ours = next(text for text in markdown(table).splitlines() if text.startswith("| **erm (ours)**"))
    assert "10.0 (3/12)" in ours and "0.0 (1/7)" in ours
    assert r"0.0 (1/7)" in latex(table)
    head, *body = csv_text([table]).splitlines()
    row = dict(zip(head.split(","), body[-1].split(","), strict=True))
    assert row["cells"] == "3" and row["cells without development cells"] == "1"


def test_runs_with_warnings_are_counted_below_the_table() -> None:
    rows = rows_for("pacs", ["rsc", "erm"], lambda m, i, s: 50)
    for row in [row for row in rows if row["method"] == "rsc"][:3]:
        row["warnings"] = ["The network learned nothing."]
    (table,) = make_tables("pacs", rows)
    (note,) = (line for line in table.footer if "a warning" in line)
    assert note.startswith("rsc:") and "3 of 12 runs ended with a warning" in note


def test_where_classes_are_uneven_balanced_accuracy_has_a_table_of_its_own() -> None:
    """Not where accuracies are published, and not of results that know no recalls."""
    rows = rows_for("pacs", ["erm", "proud"], lambda m, i, s: 80.0)
    recalls = [
        row | {"test_recall": [0.9, None, 0.5] if row["method"] == "proud" else [0.8, None, 0.8]} for row in rows
    ]
    mine = [row | {"bench": "mine", "config": row["config"] | {"data": "mine"}} for row in recalls]
    assert len(make_tables("pacs", recalls)) == 1
    assert len(make_tables("mine", [{**row, "test_recall": [0.8, None, 0.8]} for row in mine])) == 1
    assert len(make_tables("mine", [{**row, "test_recall": []} for row in mine])) == 1
    accuracy, balanced = make_tables("mine", mine)
    assert [line.average for line in accuracy.lines] == pytest.approx([80, 80])
    assert {line.label: line.average for line in balanced.lines} == pytest.approx({"proud": 70, "erm": 80})
    for table in (accuracy, balanced):  # nothing is published to compare with
        assert not any(word in text for text in (markdown(table), latex(table)) for word in ("Diff", "ours", "**"))
    assert "mine: balanced accuracy" in csv_text([accuracy, balanced]) and "Mean recall" in markdown(balanced)
