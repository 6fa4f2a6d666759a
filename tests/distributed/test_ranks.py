"""Two processes train the same network as one: same pseudo-labels, same losses; and a killed rank costs no run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from together import RUNS, endless, one_run

from proud.cli.flags.train import parse_train
from proud.distributed import ranks
from proud.distributed.group import Group
from proud.distributed.ranks import check_method, join
from proud.errors import UserError
from proud.machine import Stopped
from proud.methods import METHODS, method_class
from proud.methods.context import Context
from proud.training.loop import Progress
from proud.training.run import train
from toy import write_folders

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
ENVIRONMENT["PYTHONPATH"] = f"{HERE}:{HERE.parent}:{HERE.parents[1] / 'src'}"
LIMIT = 250  # seconds; only reached when something is broken. A lost rank would be waited for 30 minutes


class Trained(NamedTuple):
    """All runs of `together`, by one process and by two."""

    alone: Path
    two: Path
    data: Path
    returncode: int
    errors: str
    """of torchrun, of which one process was killed in its last run"""


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def labels_of(folder: Path) -> list[list[str]]:
    return [line.split(",")[:3] for line in (folder / "pseudo_labels.csv").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One launch of two processes for all tests."""
    alone, two = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("two")
    data = write_folders(tmp_path_factory.mktemp("data"), {"a": 0, "b": 1, "c": 2}, per_class=3)

    def stop_in_main(now: Progress) -> None:
        if (now.stage, now.epoch, now.step) == ("main", 2, 1):
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "chunk_size", property(lambda self: 7))
        patch.setattr("proud.training.loop.CHECKPOINT_SECONDS", 0.0)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += [str(HERE / "together.py"), str(two), str(data)]
        log = two / "log.txt"
        with log.open("w") as errors, subprocess.Popen(command, env=ENVIRONMENT, stderr=errors) as job:
            try:
                torch.set_num_threads(1)
                with pytest.raises(Stopped):
                    one_run("proud", two / "resumed", watch=stop_in_main)
                (two / "stopped").touch()
                for name in RUNS:
                    one_run(name, alone)
                checkpoints = two / "endless" / "checkpoints"
                while not any(path.stem > "checkpoint-000001" for path in checkpoints.glob("*.json")):
                    assert job.poll() is None, log.read_text()
                    time.sleep(0.02)
                os.kill(process_of(job, 1), signal.SIGKILL)
                job.wait(LIMIT)
            finally:
                job.terminate()  # torchrun ends its processes
    return Trained(alone, two, data, job.returncode, log.read_text())


def process_of(job: subprocess.Popen[bytes], rank: int) -> int:
    """The process id of one of torchrun's processes."""
    started = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    (found,) = (
        pid for pid in started if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )
    return found


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_what_one_does(name: str, trained: Trained) -> None:
    one, two = (records_of(folder / name) for folder in (trained.alone, trained.two))
    assert len(one) == len(two) > 0
    for expected, found in zip(one, two, strict=True):
        assert found["losses"] == pytest.approx(expected["losses"], rel=2e-5)
        assert found.keys() == expected.keys()
        for domain, signals in expected.get("domains", {}).items():
            assert found["domains"][domain]["accuracy"] == signals["accuracy"]
            assert found["domains"][domain]["uncertainty"] == pytest.approx(signals["uncertainty"], abs=1e-4)
    if name != "labeled alone":
        assert labels_of(trained.alone / name) == labels_of(trained.two / name)
    a, b = (load_file(folder / name / "model" / "model.safetensors") for folder in (trained.alone, trained.two))
    assert a.keys() == b.keys()
    for key, value in a.items():
        torch.testing.assert_close(b[key], value, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}")
    assert json.loads((trained.two / name / "run.json").read_text())["processes"] == 2


def test_a_run_of_one_process_continues_with_two(trained: Trained) -> None:
    expected, found = records_of(trained.alone / "proud"), records_of(trained.two / "resumed" / "proud")
    assert [record["losses"] for record in found] == [pytest.approx(record["losses"], rel=1e-4) for record in expected]
    assert labels_of(trained.alone / "proud") == labels_of(trained.two / "resumed" / "proud")


def test_what_cannot_be_divided_is_refused_in_one_sentence_by_the_first_process_alone(trained: Trained) -> None:
    first, second = (json.loads((trained.two / f"reports-{rank}.json").read_text()) for rank in (0, 1))
    assert first == [
        "The method fixmatch runs in one process only: start it without torchrun.",
        "--batch-size 5 is not divisible by 2 processes: choose a multiple of 2.",
    ]
    assert second == ["silent", "silent"]
    assert not (trained.two / "refused").exists()


@pytest.mark.parametrize("name", METHODS)
def test_only_methods_made_for_it_run_in_several_processes(name: str) -> None:
    """A method that builds on source-only training does not inherit this."""
    group = Group()
    group.size = 2
    if name.startswith(("proud", "erm")):
        return check_method(group, name, method_class(name), 8)
    with pytest.raises(UserError, match="one process only"):
        check_method(group, name, method_class(name), 8)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7, 256])
def test_spans_cover_all_rows_once(size: int, count: int) -> None:
    covered = []
    for rank in range(size):
        group = Group()
        group.rank, group.size = rank, size
        covered += list(range(count))[group.span(count)]
    assert covered == list(range(count))


def test_a_killed_rank_ends_the_job_and_the_run_continues_with_one_process(trained: Trained) -> None:
    assert trained.returncode not in (0, None)
    assert "rank 0: another process of this run has ended" in trained.errors and "--resume" in trained.errors
    out = trained.two / "endless"
    done = len(records_of(out))
    seen: list[Progress] = []

    def a_little(now: Progress) -> None:
        seen.append(now)
        if len(seen) > 50:
            raise Stopped

    given = parse_train(endless(str(trained.data), out))
    with pytest.raises(Stopped):
        train(given.run, given.settings, replace(given.options, resume=True), watch=a_little)
    assert 1 < seen[0].epoch <= done + 1
    epochs = [(record["stage"], record["epoch"]) for record in records_of(out)]
    assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, len(epochs))]


@pytest.mark.parametrize("rank", ["1", "-1", "", "first"])
def test_a_rank_that_no_group_has_is_refused(rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for a group for half an hour."""
    for name, text in {"RANK": rank, "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(UserError, match=f"RANK={rank} is not one of 1 processes"), join("cpu"):
        pass


def test_signals_end_a_process_that_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    seen: list[Any] = []
    monkeypatch.setattr(ranks.dist, "init_process_group", lambda *_, **__: seen.extend(map(signal.getsignal, numbers)))
    monkeypatch.setattr(ranks.dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(ranks, "Ranks", lambda: None)
    for name, text in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("MASTER_PORT", "1")
    with ranks.join("cpu"):
        assert [signal.getsignal(number) for number in numbers] == before
    assert seen == [signal.SIG_DFL] * 3
