"""results.jsonl: what its rows hold, and which are refused."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image

from bench.small_bench import Diary, Make, rows_of, work_on, write_domains
from proud.bench.results import BUILT_IN, FORMAT, Results, images_of, line_of, read_rows, settings_of
from proud.cli import bench
from proud.cli.bench import out_folder
from proud.errors import UserError
from proud.stored import ResultRow
from proud.typed import as_record

ROW: dict[str, Any] = {
    "format": "proud-result-1",  # without a checksum, so that tests can write it
    "bench": "mine",
    "method": "erm",
    "labeled": "a",
    "test": "b",
    "seed": 1,
    "domains": ["a", "b"],
    "test_accuracy": 0.5,
    "seconds": 1.0,
    "config": {},
}


def test_the_last_scores_are_those_of_the_score(arguments: Make) -> None:
    short = arguments(combos="one:two", epochs=2, pretrain_epochs=2)
    assert bench.run(short) == 0
    (row,) = rows_of(short)
    assert len(row["test_accuracy_last"]) == 2 and row["test_accuracy"] == fmean(row["test_accuracy_last"])
    assert {"balanced_accuracy", "macro_f1", "auroc", "absent"} == row["test_scores"].keys() == row["val_scores"].keys()


def test_names_with_commas_and_colons(tmp_path: Path, arguments: Make) -> None:
    root = write_domains(tmp_path / "sites", ("Köln: West", "a, b", "C"), ["x", "y"], 4)
    odd = arguments(name=str(root), combos="Köln: West:a, b")
    assert bench.run(odd) == 0
    (row,) = rows_of(odd)
    assert (row["labeled"], row["test"]) == ("Köln: West", "a, b")
    assert shlex.split(row["command"])[8] == "Köln: West:a, b"


def test_how_many_images_there_are_and_which() -> None:
    task = {"domains": {"a": {"images": 3}, "b": {"images": 4}}, "pictures": {"a": "1", "b": "2"}}
    assert images_of(task) == {"images": {"a": 3, "b": 4}, "content": {"a": "1", "b": "2"}}


# ---- rows of other settings or images


def test_rows_of_other_settings_are_not_added(tmp_path: Path, arguments: Make) -> None:
    assert bench.run(arguments(combos="one:two")) == 0
    other = arguments(combos="one:two,two:one", epochs=7, out=str(tmp_path / "other"))
    assert bench.run(other) == 0
    late = next(row for row in rows_of(other) if row["labeled"] == "two")
    with pytest.raises(UserError, match="other settings"):
        Results(out_folder(arguments()) / "results.jsonl").add(late)


def test_different_images_under_the_same_names_are_refused_before_a_step(arguments: Make, tmp_path: Path) -> None:
    given = arguments(combos="one:two")
    data = Path(shutil.copytree(given.name, tmp_path / "tiny"))
    assert bench.run(arguments(name=str(data), combos="one:two")) == 0
    (row,) = rows_of(given)
    assert set(row["content"]) == {"one", "two", "three", "four"}
    for changed in ("three/a/0.png", "two/b/1.png", "one/a/2.png"):
        before = (data / changed).read_bytes()
        Image.new("RGB", (12, 12), (9, 9, 9)).save(data / changed)
        steps: list[int] = []
        view = Diary(lambda job, now, steps=steps: steps.append(now.step))
        outcome = work_on(arguments(name=str(data), combos="two:four"), view)
        (message,) = outcome.failures.values()
        assert "different images under the same name" in message and changed.split("/")[0] in message
        assert not steps
        (data / changed).write_bytes(before)
    assert work_on(arguments(name=str(data), combos="one:two,two:one"), Diary()).failures == {}


def test_other_numbers_of_images_are_refused_before_a_step(arguments: Make) -> None:
    given = arguments(combos="one:two")
    assert bench.run(given) == 0
    path = out_folder(given) / "results.jsonl"
    (row,) = read_rows(path)
    path.write_bytes(line_of(row | {"images": row["images"] | {"three": 99}}))
    steps: list[int] = []
    outcome = work_on(arguments(combos="one:four"), Diary(lambda job, now: steps.append(now.step)))
    (message,) = outcome.failures.values()
    assert not steps and "unlabeled three" in message


# ---- files that are none of ours


@pytest.mark.parametrize("line", ["{", '{"method": "erm"}', '{"format": "x"}', "[]", "3"])
def test_a_file_that_is_no_results_file(tmp_path: Path, line: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match="line 1"):
        read_rows(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": [1]},
        {"content": {"test a": 3}},
        {"images": 5},
        {"images": {"a": "b"}},
        {"code": ["x"]},
        {"warnings": "learned nothing"},
        {"warnings": [1]},
        {"warnings": None},
    ],
)
def test_a_row_with_a_wrong_part_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    assert read_rows(path) == [ROW]
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | wrong) + "\n")
    with pytest.raises(UserError, match=rf"not results of proud bench \(line 2: {next(iter(wrong))}.*: expected"):
        read_rows(path)


def test_a_run_with_two_lines_is_refused(tmp_path: Path) -> None:
    lines = [ROW, ROW | {"seed": 2}, ROW | {"test_accuracy": 0.6}]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match="more than one line for mine erm a b 1"):
        read_rows(tmp_path / "results.jsonl")


def test_a_setting_that_no_longer_exists_counts_if_it_was_on(arguments: Make, tmp_path: Path) -> None:
    bench.run(arguments(combos="one:two"))
    path = tmp_path / "out" / "results.jsonl"
    (row,) = read_rows(path)
    for value, refused in ((False, False), (0.0, False), (0.3, True)):
        row["config"]["method_config"]["glitter"] = value
        path.write_bytes(line_of(row))
        if not refused:
            bench.run(arguments(combos="one:two"))
            continue
        with pytest.raises(UserError, match=r"(?s)other settings.*glitter: 0\.3 → None"):
            bench.run(arguments(combos="one:two"))


def test_settings_that_a_line_does_not_name_have_their_defaults() -> None:
    plain = settings_of({"method": "proud", "method_config": {"alpha": 0.7}})
    assert plain["square"] == "middle" and plain["method_config"]["alpha"] == 0.7
    assert settings_of({"method": "proud", "method_config": {"alpha": 0.7, **BUILT_IN}}) == plain
    other = {"method": "proud", "method_config": {"alpha": 0.7, "pml_views": "all"}}
    assert settings_of(other)["method_config"]["pml_views"] == "all"


def test_no_wrong_bit_changes_a_result(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    row = as_record(ROW | {"format": FORMAT, "test_recall": [0.0, 0.25], "note": "as it was"}, ResultRow)
    Results(path).add(row)
    assert read_rows(path) == [row]
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        for bit in range(8):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
            try:
                assert read_rows(path) in ([row], [])  # without its end, a line is that of a killed process
            except UserError:
                refused += 1
    assert refused > 7 * len(content)
