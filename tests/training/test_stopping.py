"""Runs that are stopped or killed keep the last finished epoch, and continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import children
import pausing
import pytest
import torch
from safetensors.torch import load_file

from proud.cli.main import run
from toy import write_folders

FLAGS = """--labeled central --test none --size 16 --model digits --threads 1 --device cpu --quiet
--epochs 8 --pretrain-epochs 1 --batch-size 4 --lr 0.01 --mixup 0.4 --tau-uncertainty 0.1 --no-flip"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folders(tmp_path_factory.mktemp("data"), {"central": 0, "north": 1}, per_class=4)


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run(flags(data, out)) == 0
    return out


def flags(data: Path, out: Path, *more: str) -> list[str]:
    return ["train", "--data", str(data), "--out", str(out), *FLAGS.split(), *more]


@pytest.fixture
def start() -> Iterator[Callable[..., BaseProcess]]:
    """`start(log, argv, before)`: the command line in a process of its own, which calls `before` first."""
    started: list[BaseProcess] = []

    def begin(*arguments: Any) -> BaseProcess:
        started.append(children.start(children.command, *arguments))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.join()


def records(out: Path) -> int:
    path = out / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_equal_runs(a: Path, b: Path) -> None:
    first, second = (load_file(out / "model" / "model.safetensors") for out in (a, b))
    assert all(torch.equal(first[key], second[key]) for key in first)
    for name in ("records.jsonl", "pseudo_labels.csv", "outputs.safetensors", "snapshots/first.safetensors"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    results = [json.loads((out / "result.json").read_text()) for out in (a, b)]
    assert results[0] == results[1]


def test_a_signal_stops_at_the_next_step(
    data: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., BaseProcess]
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        out, log = tmp_path / number.name, tmp_path / f"{number.name}.log"
        process = start(log, flags(data, out), partial(pausing.pause_after, 4))
        children.wait_until(lambda out=out: records(out) == 4, process)
        os.kill(process.pid, number)
        assert children.ends(process) == 130, children.read(log)
        assert "--resume" in children.read(log) and "Traceback" not in children.read(log)
        assert records(out) == 4 and not (out / "model" / "model.safetensors").exists()
        assert list((out / "checkpoints").glob("*.json"))
        assert run(flags(data, out, "--resume")) == 0
        assert_equal_runs(undisturbed, out)


def test_kills_at_any_moment_lose_nothing(
    data: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., BaseProcess]
) -> None:
    out, chance = tmp_path / "run", random.Random(5)
    for count in (2, 5):
        process = start(tmp_path / "log", flags(data, out, "--resume"), pausing.checkpoint_every_epoch)
        children.wait_until(lambda count=count: records(out) >= count, process)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
    assert run(flags(data, out, "--resume")) == 0
    assert_equal_runs(undisturbed, out)
