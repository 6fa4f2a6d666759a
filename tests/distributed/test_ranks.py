"""Two processes train the same network as one: same pseudo-labels, same losses; and a killed rank ends no run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from together import RUNS, one_run

from proud.config import Options, RunConfig
from proud.errors import UserError
from proud.methods import METHODS, method_class, method_config
from proud.methods.context import Context
from proud.distributed.group import Group
from proud.distributed.ranks import check_method
from proud.training.loop import Progress, Stopped
from proud.training.run import train
from toy import write_folders

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
ENVIRONMENT["PYTHONPATH"] = f"{HERE}:{HERE.parent}:{HERE.parents[1] / 'src'}"


def torchrun(*arguments: str, processes: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen([*command, *arguments], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def labels_of(folder: Path) -> list[list[str]]:
    return [line.split(",")[:3] for line in (folder / "pseudo_labels.csv").read_text().splitlines()]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All runs of `together`: by one process, and by two."""
    alone, two = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("two")

    def stop_in_main(now: Progress) -> None:
        if (now.stage, now.epoch, now.step) == ("main", 2, 1):
            raise Stopped

    patch = pytest.MonkeyPatch()
    patch.setattr(Context, "chunk_size", property(lambda self: 7))
    patch.setattr("proud.training.loop.CHECKPOINT_SECONDS", 0.0)
    with patch.context(), pytest.raises(Stopped):
        one_run("proud", two / "resumed", watch=stop_in_main)
    job = torchrun(str(HERE / "together.py"), str(two))
    torch.set_num_threads(1)
    for name in RUNS:
        one_run(name, alone)
    patch.undo()
    _, errors = job.communicate(timeout=200)
    assert job.returncode == 0, errors
    return alone, two


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_what_one_does(name: str, folders: tuple[Path, Path]) -> None:
    one, two = (records_of(folder / name) for folder in folders)
    assert len(one) == len(two) > 0
    for expected, found in zip(one, two, strict=True):
        assert found["losses"] == pytest.approx(expected["losses"], rel=2e-5)
        assert found.keys() == expected.keys()
        for domain, signals in expected.get("domains", {}).items():
            assert found["domains"][domain]["accuracy"] == signals["accuracy"]
            assert found["domains"][domain]["uncertainty"] == pytest.approx(signals["uncertainty"], abs=1e-4)
    if name != "labeled alone":
        assert labels_of(folders[0] / name) == labels_of(folders[1] / name)
    a, b = (load_file(folder / name / "model.safetensors") for folder in folders)
    assert a.keys() == b.keys()
    for key, value in a.items():
        torch.testing.assert_close(b[key], value, rtol=1e-3, atol=1e-4, msg=lambda text, key=key: f"{key}: {text}")
    assert json.loads((folders[1] / name / "run.json").read_text())["processes"] == 2


def test_a_run_of_one_process_goes_on_with_two(folders: tuple[Path, Path]) -> None:
    expected, found = records_of(folders[0] / "proud"), records_of(folders[1] / "resumed" / "proud")
    assert [record["losses"] for record in found] == [pytest.approx(record["losses"], rel=1e-4) for record in expected]
    assert labels_of(folders[0] / "proud") == labels_of(folders[1] / "resumed" / "proud")


def test_what_cannot_be_shared_is_refused_in_one_sentence_told_once(folders: tuple[Path, Path]) -> None:
    first, second = (json.loads((folders[1] / f"told-{rank}.json").read_text()) for rank in (0, 1))
    assert first == [
        "The method fixmatch runs in one process only: start it without torchrun.",
        "--batch-size 5 cannot be shared by 2 processes: choose a multiple of 2.",
    ]
    assert second == ["silent", "silent"]
    assert not (folders[1] / "refused").exists()


@pytest.mark.parametrize("name", METHODS)
def test_only_what_was_made_for_it_is_shared(name: str) -> None:
    """A method that builds on source-only training does not inherit that it can be shared."""
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


def test_a_killed_rank_ends_the_job_and_the_run_goes_on_with_one(tmp_path: Path) -> None:
    data = write_folders(tmp_path / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
    out = tmp_path / "out"
    flags = f"--data {data} --labeled a --test c --method erm --model digits --size 16 --out {out} --device cpu"
    flags += " --epochs 4000 --pretrain-epochs 1 --batch-size 4 --lr 0.001 --val 0 --quiet"
    job = torchrun("-m", "proud", "train", *flags.split())
    wait_for(lambda: any(path.stem > "checkpoint-000001" for path in (out / "checkpoints").glob("*.json")), job)
    children = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    followers = [pid for pid in children if b"RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()]
    began = time.monotonic()
    os.kill(followers[0], signal.SIGKILL)
    _, errors = job.communicate(timeout=60)
    assert job.returncode not in (0, None)
    assert time.monotonic() - began < 40
    assert "rank 0: another process of this run has ended" in errors and "--resume" in errors
    done = len(records_of(out))
    run = RunConfig(str(data), labeled="a", test="c", method="erm", model="digits", size=16, val=0)
    settings = method_config("erm", epochs=4000, pretrain_epochs=1, batch_size=4, lr=0.001)
    seen: list[Progress] = []

    def a_little(now: Progress) -> None:
        seen.append(now)
        if len(seen) > 50:
            raise Stopped

    with pytest.raises(Stopped):
        train(run, wanted(settings, out), Options(str(out), "cpu", 1, resume=True, quiet=True), watch=a_little)
    assert 1 < seen[0].epoch <= done + 1
    epochs = [(record["stage"], record["epoch"]) for record in records_of(out)]
    assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, len(epochs))]


def wanted(settings: Any, out: Path) -> Any:
    """The command line's settings are those of its preset for the rest."""
    stored = json.loads((out / "run.json").read_text())["config"]["method_config"]
    return type(settings)(**stored)


def wait_for(condition: Any, job: subprocess.Popen[str], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)
