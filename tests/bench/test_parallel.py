"""Runs side by side: the same results as one after another, whatever their neighbours are."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from proud.bench.claims import claim
from proud.bench.processes import work_side_by_side
from proud.bench.results import read_rows
from proud.cli.bench import BenchArguments, bench, out_folder, prepare
from proud.config import Options
from proud.errors import UserError

Make = Callable[..., BenchArguments]
Start = Callable[[BenchArguments], subprocess.Popen[str]]


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.parent.name: load_file(path) for path in sorted((folder / "runs").glob("*/model.safetensors"))}


def test_time_ends_all_processes_and_the_same_command_goes_on(
    arguments: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"methods": "proud", "out": str(tmp_path / "bench"), "parallel": 2, "threads": 1, "epochs": 3}
    assert bench(arguments(minutes=0.001, **given)) == 0
    assert "The time is over" in capsys.readouterr().out
    assert bench(arguments(**given)) == 0
    assert len(read_rows(tmp_path / "bench" / "results.jsonl")) >= 2


def test_a_process_that_dies_is_told(arguments: Make, tmp_path: Path) -> None:
    _, plan = prepare(arguments(methods="proud", out=str(tmp_path / "bench")))
    broken: Any = BreaksWhenUnpacked()
    with pytest.raises(UserError, match=r"2 of the processes ended unexpectedly \(exit code 3\)"):
        work_side_by_side(2, plan, tmp_path / "bench", broken, Options(device="cpu"), Silent(), lambda: False)


def test_processes_end_when_the_command_is_killed(arguments: Make, start_worker: Start, tmp_path: Path) -> None:
    given = arguments(methods="proud", out=str(tmp_path / "bench"), parallel=2, threads=1, epochs=2000)
    doomed = start_worker(given)
    folder = tmp_path / "bench"
    try:
        wait_until(lambda: len(busy(folder)) == 2)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
    finally:
        doomed.kill()
    wait_until(lambda: not busy(folder))
    assert not (folder / "results.jsonl").exists() or not read_rows(folder / "results.jsonl")


def busy(folder: Path) -> list[Path]:
    """Jobs that some process is training on right now."""
    held = []
    for lock in folder.glob("locks/*.lock"):
        records = folder / "runs" / lock.stem / "records.jsonl"
        with claim(lock) as free:
            if not free and records.exists() and records.stat().st_size:
                held.append(lock)
    return held


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(900):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


class BreaksWhenUnpacked:
    def __reduce__(self) -> Any:
        return os._exit, (3,)


class Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_neighbours_change_nothing(arguments: Make, tmp_path: Path) -> None:
    found = {}
    for parallel in (1, 3):
        one = arguments(
            methods="proud,erm", out=str(tmp_path / f"bench-{parallel}"), parallel=parallel, threads=1, quiet=True
        )
        assert bench(one) == 0
        folder = out_folder(one)
        found[parallel] = weights(folder)
        keys = [(row["method"], row["labeled"], row["test"]) for row in read_rows(folder / "results.jsonl")]
        assert len(keys) == len(set(keys)) == len(found[parallel])
    assert found[1].keys() == found[3].keys() and len(found[1]) >= 2
    for name, tensors in found[1].items():
        assert all(torch.equal(value, found[3][name][key]) for key, value in tensors.items())
