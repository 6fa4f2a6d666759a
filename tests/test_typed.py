"""The one reader of JSON files: what it refuses, and that every file the project writes is read back unchanged."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from proud.bench.results import read_rows
from proud.config import Options
from proud.errors import UserError
from proud.held import HeldFolder
from proud.model.format import read_result, read_run, read_verdicts
from proud.stored import EpochRecord, ModelRecord, Name, ResultRow, RunRecord
from proud.training.records import OwnRecords, epochs_of, timings_of
from proud.training.run import train
from proud.typed import MOST_NESTED, as_record, parse_lines, parse_record, read_record
from toy import toy_run, toy_settings, toy_task

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[" * 200_000,
        '{"a": ' + "[" * (MOST_NESTED + 2) + "]" * (MOST_NESTED + 2) + "}",
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": "' + "x" * 20_000 + '"}',
        "\x00",
        "",
    ],
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^.{1,400}$"):
        parse_record(text.encode(), dict[str, Name | list[Any] | float])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    task = toy_task(per_class=4)
    settings = toy_settings("proud", epochs=2, pretrain_epochs=1)
    options = Options(out=str(folder / "x"), threads=1, quiet=True, device="cpu")
    train(toy_run("proud", task), settings, options, data=task)
    return folder / "x"


def test_a_run_is_read_back_as_it_was_written(finished: Path) -> None:
    def plain(name: str) -> Any:
        return json.loads((finished / name).read_bytes())

    def lines(name: str) -> list[Any]:
        return [json.loads(line) for line in (finished / name).read_bytes().splitlines()]

    assert {**read_run(finished), "seal": plain("run.json")["seal"]} == plain("run.json")
    assert read_result(finished) == plain("result.json")
    assert read_verdicts(finished) == plain("diagnosis.json")
    assert epochs_of(finished).read() == lines("records.jsonl")
    assert timings_of(finished).read() == lines("timings.jsonl")
    about = plain("model/model.json")
    assert read_record(finished / "model" / "model.json", ModelRecord).keys() == about.keys()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("threads",), -1),
        (("threads",), 2**31),
        (("threads",), 10**6),
        (("threads",), "2"),
        (("task", "domains", "d0", "images"), -1),
        (("task", "domains", "d0", "role"), "\x1b[31m"),
        (("task", "classes"), "cat"),
        (("task", "classes"), []),
        (("task", "skipped"), [1]),
        (("model", "size"), 10**9),
        (("config",), []),
        (("format",), "proud-run-3"),
    ],
)
def test_values_out_of_range_are_refused(place: tuple[str, ...], value: Any, finished: Path) -> None:
    about: Any = json.loads((finished / "run.json").read_bytes())
    inside = about
    for name in place[:-1]:
        inside = inside[name if name in inside else next(iter(inside))]
    inside[place[-1]] = value
    with pytest.raises(ValueError, match=r"^[\w.\[\]]+: "):
        as_record(about, RunRecord)


def test_results_of_earlier_versions_are_read() -> None:
    for path in sorted(RESULTS.glob("*.jsonl")):
        raw = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert [row | {} for row in read_rows(path)] == [{key: row[key] for key in row if key != "seal"} for row in raw]


def test_the_line_is_named() -> None:
    good = b'{"stage": "main", "epoch": 1, "losses": {}}'
    with pytest.raises(ValueError, match=r"line 3: .*epoch"):
        list(parse_lines(good + b"\n\n" + good.replace(b"1", b'"x"') + b"\n", EpochRecord))


@pytest.mark.parametrize("name", ["run.json", "records.jsonl", "diagnosis.json", "result.json", "results.jsonl"])
@pytest.mark.parametrize("listed", [True, False], ids=["finished", "unfinished"])
def test_a_pipe_is_not_waited_for(name: str, listed: bool, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    if not listed:
        (tmp_path / "manifest.json").unlink()
    readers = {
        "run.json": read_run,
        "records.jsonl": lambda folder: epochs_of(folder).read(),
        "diagnosis.json": read_verdicts,
        "result.json": read_result,
        "results.jsonl": lambda folder: read_rows(folder / name),
    }
    if name == "result.json" and not listed:
        assert read_result(tmp_path) is None
        return
    with pytest.raises(UserError, match=r"not a regular file|json(l|) is damaged"):
        readers[name](tmp_path)


def test_what_cannot_be_read_back_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be recorded"):
        OwnRecords(HeldFolder(tmp_path), "records.jsonl", EpochRecord).append(
            {"stage": "main", "epoch": 1, "losses": {"loss": float("nan")}}
        )
    assert not (tmp_path / "records.jsonl").exists()


def test_a_result_names_its_domains(tmp_path: Path) -> None:
    row = json.loads((RESULTS / "pacs.jsonl").read_bytes().splitlines()[0])
    as_record(row, ResultRow)
    (tmp_path / "x.jsonl").write_text(json.dumps(row | {"labeled": "elsewhere"}) + "\n")
    with pytest.raises(UserError, match="not among its domains"):
        read_rows(tmp_path / "x.jsonl")


def test_no_other_module_parses_json() -> None:
    source = Path(__file__).parents[1] / "src" / "proud"
    found = [path.relative_to(source) for path in source.rglob("*.py") if "json.load" in path.read_text()]
    assert found == [Path("typed.py")]
