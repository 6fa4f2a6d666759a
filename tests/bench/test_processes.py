"""Runs side by side: the same results as one after another, and nothing is lost when a process ends."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.small_bench import Make, rows_of
from bench.workers import run_bench_with_forks
from proud.bench.claims import claim
from proud.bench.processes import _Together, work_side_by_side
from proud.bench.results import key_of
from proud.cli import bench
from proud.cli.bench import out_folder, prepare
from proud.config import Options
from proud.errors import UserError
from reliability.children import SERVER, ends, read, start, wait_until


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that have torch already. One that is spawned imports it first; see tests/bench/test_reuse.py."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: SERVER)


@pytest.mark.usefixtures("quick_start")
def test_time_ends_all_processes_and_the_same_command_continues(
    arguments: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"methods": "proud", "parallel": 2}
    assert bench.run(arguments(minutes=1e-9, **given)) == 0
    assert "The time is up" in capsys.readouterr().out
    assert bench.run(arguments(**given)) == 0
    assert sorted(key_of(row)[1:3] for row in rows_of(arguments())) == [("one", "two"), ("two", "one")]


@pytest.mark.usefixtures("quick_start")
def test_processes_that_die_are_reported(arguments: Make, tmp_path: Path) -> None:
    _, plan = prepare(arguments())
    broken: Any = BreaksWhenUnpickled()
    with pytest.raises(UserError, match=r"2 of the processes ended unexpectedly \(exit code 3\)"):
        work_side_by_side(2, plan, tmp_path / "bench", broken, Options(device="cpu"), Silent(), lambda: False)


class BreaksWhenUnpickled:
    def __reduce__(self) -> Any:
        return os._exit, (3,)


class Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_processes_end_when_the_command_is_killed(arguments: Make, tmp_path: Path) -> None:
    given = arguments(parallel=2, epochs=100_000)
    folder, log = out_folder(given), tmp_path / "log"
    doomed = start(run_bench_with_forks, log, given)
    wait_until(lambda: len(busy(folder)) == 2, doomed)
    doomed.kill()
    ends(doomed)
    wait_until(lambda: not busy(folder))
    assert not rows_of(given), read(log)


def busy(folder: Path) -> list[Path]:
    """Jobs that a process is training right now."""
    held = []
    for lock in folder.glob("locks/*.lock"):
        records = folder / "runs" / lock.stem / "records.jsonl"
        with claim(lock) as free:
            if not free and records.exists() and records.stat().st_size:
                held.append(lock)
    return held


def test_a_job_that_failed_in_one_process_and_not_in_another_is_no_failure(arguments: Make) -> None:
    _, plan = prepare(arguments())
    messages: Any = multiprocessing.get_context("spawn").Queue()
    first, second = plan.jobs
    together = _Together(Silent())
    for message in (
        ("failed", 0, first, UserError("no memory")),
        ("failed", 0, second, UserError("no memory")),
        ("finished", 1, first, {}),
    ):
        messages.put(message)
        assert together.listen(messages, 60)
    assert together.outcome("", [], False).failures == {second.key: "no memory"}
