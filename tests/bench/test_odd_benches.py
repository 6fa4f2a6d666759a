"""Uneven sites, odd names, numbers that mean nothing, settings that do not agree."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from test_queue import rows_of

from bench.conftest import write_domains
from proud.bench.results import Results
from proud.bench.queue import is_general
from proud.cli.bench import BenchArguments, bench, out_folder, prepare
from proud.data.catalog import REPORT_MARK
from proud.errors import UserError

Make = Callable[..., BenchArguments]


def test_what_two_domains_cannot_do_stops_no_other_combination(tmp_path: Path, arguments: Make) -> None:
    root = write_domains(tmp_path / "sites", ("A", "C"), ["x", "y", "z"], 4)
    write_domains(root, ("B",), ["x", "y"], 4, seed=1)
    uneven = arguments(name=str(root), methods="erm,proud", combos="all", pretrain_epochs=1)
    assert bench(uneven) == 1
    assert {(row["labeled"], row["test"]) for row in rows_of(uneven)} == {
        ("A", "B"),
        ("A", "C"),
        ("C", "A"),
        ("C", "B"),
    }


def test_the_pictures_of_a_report_are_left_out(
    tmp_path: Path, arguments: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_domains(tmp_path / "sites", ("A", "B", "C"), ["x", "y"], 4)
    write_domains(root, ("report_files",), ["x"], 4, seed=1)
    (root / "report_files" / REPORT_MARK).write_text("{}")
    assert bench(arguments(name=str(root), methods="erm", combos="A:B", pretrain_epochs=1)) == 0
    assert "report_files holds the pictures of a report and is left out" in capsys.readouterr().out


def test_what_stops_a_whole_bench(tmp_path: Path, arguments: Make) -> None:
    """Asked by workers on this machine and by Ray's alike."""
    _, plan = prepare(arguments(methods="erm,proud", combos="one:two,two:one"))
    first, second = plan.jobs[:2]
    of_weights, of_domains = "--weights x: no such file.", "The test domain 'two' has no image of 'a'."
    assert not is_general(of_weights, first, {})
    assert is_general(of_weights, second, {first.key: of_weights})
    assert not is_general(of_domains, second, {first.key: of_domains})


def test_the_same_data_by_another_path_goes_on(
    tmp_path: Path, arguments: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_domains(tmp_path / "sites", ("A", "B", "C"), ["x", "y"], 4)
    assert bench(arguments(name=str(root), combos="A:B")) == 0
    monkeypatch.chdir(tmp_path)
    again = arguments(name="./sites", combos="A:B,B:A")
    assert bench(again) == 0 and len(rows_of(again)) == 2


def test_names_with_commas_and_colons(tmp_path: Path, arguments: Make) -> None:
    root = write_domains(tmp_path / "sites", ("Köln: West", "a, b", "C"), ["x", "y"], 4)
    odd = arguments(name=str(root), combos="Köln: West:a, b")
    assert bench(odd) == 0
    (row,) = rows_of(odd)
    assert (row["labeled"], row["test"]) == ("Köln: West", "a, b")
    assert shlex.split(row["command"])[8] == "Köln: West:a, b"


def test_results_of_other_settings_are_not_added(tmp_path: Path, arguments: Make) -> None:
    assert bench(arguments(combos="one:two")) == 0
    other = arguments(combos="one:two,two:one", epochs=7, out=str(tmp_path / "other"))
    assert bench(other) == 0
    late = next(row for row in rows_of(other) if row["labeled"] == "two")
    with pytest.raises(UserError, match="other settings"):
        Results(out_folder(arguments()) / "results.jsonl").add(late)


def test_the_last_scores_are_those_of_the_score(arguments: Make) -> None:
    short = arguments(combos="one:two", epochs=2, pretrain_epochs=2)
    assert bench(short) == 0
    (row,) = rows_of(short)
    assert len(row["test_accuracy_last"]) == 2 and row["test_accuracy"] == fmean(row["test_accuracy_last"])


def test_epochs_given_twice_are_refused(arguments: Make) -> None:
    with pytest.raises(UserError, match="both given"):
        bench(arguments(epochs=2, set=("epochs=1",)))


@pytest.mark.parametrize(
    ("name", "value"), [("minutes", -1.0), ("parallel", 0), ("eval_every", 0), ("equal_budget", -3)]
)
def test_numbers_that_mean_nothing_are_refused(arguments: Make, name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} must be at least"):
        bench(arguments(**{name: value}))
