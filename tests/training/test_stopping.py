"""Runs that are stopped or killed keep the last epoch boundary, and go on as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from toy import write_folders

COMMAND = [sys.executable, "-m", "proud", "train"]
FLAGS = """--labeled central --test none --size 16 --model digits --threads 1 --device cpu --quiet
--epochs 20 --pretrain-epochs 2 --batch-size 4 --lr 0.01 --mixup 0.4 --tau-uncertainty 0.1 --no-flip"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folders(tmp_path_factory.mktemp("data"), {"central": 0, "north": 1}, per_class=4)


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert start(data, out).wait() == 0
    return out


def start(data: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "--data", str(data), "--out", str(out), *FLAGS.split(), *more]
    quiet_math = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet_math)


def wait_for_records(process: subprocess.Popen[str], out: Path, count: int) -> None:
    while process.poll() is None:
        path = out / "records.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.005)
    raise AssertionError(f"ended too early: {process.communicate()[0]}")


def assert_equal_runs(a: Path, b: Path) -> None:
    first, second = (load_file(out / "model.safetensors") for out in (a, b))
    assert all(torch.equal(first[key], second[key]) for key in first)
    for name in ("records.jsonl", "pseudo_labels.csv", "outputs.safetensors", "snapshots/first.safetensors"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    results = [json.loads((out / "result.json").read_text()) for out in (a, b)]
    assert {**results[0], "folder": ""} == {**results[1], "folder": ""}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_the_next_step(number: signal.Signals, data: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(data, out)
    wait_for_records(process, out, 4)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
    assert not (out / "model.safetensors").exists()
    assert list((out / "checkpoints").glob("*.json"))
    if number == signal.SIGINT:
        resumed = start(data, out, "--resume")
        assert resumed.wait() == 0, resumed.communicate()[0]
        assert_equal_runs(undisturbed, out)


def test_kills_at_any_moment_lose_nothing(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    chance = random.Random(5)
    for records in (2, 7):
        process = start(data, out, "--resume")
        wait_for_records(process, out, records)
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    resumed = start(data, out, "--resume")
    assert resumed.wait() == 0, resumed.communicate()[0]
    assert_equal_runs(undisturbed, out)
