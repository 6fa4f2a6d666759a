"""Processes of a distributed run, and workers of a Ray cluster, killed again and again. The run resumes with another
number of processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toy import write_folders

SRC = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(SRC)}
EPOCHS = 600


# ---- torchrun


def torchrun(processes: int, data: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    flags = f"--data {data} --labeled a --test c --model digits --size 16 --device cpu --val 0 --quiet --resume"
    flags += f" --epochs {EPOCHS} --pretrain-epochs 1 --batch-size 6 --lr 0.001"
    command += ["-m", "proud", "train", *flags.split(), "--out", str(out)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def kill_ranks(place: Path, kills: int, seed: int = 0) -> dict[str, Any]:
    """A run by two and three processes in turn; each time one of them is killed."""
    data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
    out, chance, seconds, killed = place / "run", random.Random(seed), 0.0, 0
    while killed < kills:
        before = newest(out)
        job = torchrun(2 + killed % 2, data, out)
        while newest(out) == before and job.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        assert job.poll() is None, f"the run was over before all kills were spent: {job.communicate()[1]}"
        began = time.monotonic()
        os.kill(int(chance.choice(children.read_text().split())), signal.SIGKILL)
        _, said = job.communicate(timeout=240)
        seconds = max(seconds, time.monotonic() - began)
        assert job.returncode != 0 and "another process of this run has ended" in said and "--resume" in said, said
        killed += 1
    job = torchrun(1, data, out)
    _, said = job.communicate(timeout=600)
    assert job.returncode == 0, said
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    epochs = [(record["stage"], record["epoch"]) for record in records]
    assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, EPOCHS + 1)], "lost or doubled"
    return {"kills": killed, "epochs": len(epochs), "lost_or_doubled": 0, "slowest_end_seconds": round(seconds, 1)}


def newest(out: Path) -> str:
    return max((path.name for path in (out / "checkpoints").glob("*.json")), default="")


# ---- Ray


def kill_ray_workers(place: Path, kills: int, seed: int = 0) -> dict[str, Any]:
    """A bench on a Ray of its own, two runs at a time; workers are killed, and others take over their runs."""
    domains = ("a", "b", "c", "d")
    data = write_folders(place / "data", {name: number for number, name in enumerate(domains)}, per_class=2)
    pairs = [(first, second) for first in domains[:3] for second in domains if first != second][:6]
    out, chance, killed = place / "out", random.Random(seed), 0
    flags = "--methods erm --seeds 1 --epochs 400 --pretrain-epochs 1 --model digits --weights none --size 16"
    flags += f" --device cpu --set batch_size=4 --threads 1 --engine ray --ray-cpus {(os.cpu_count() or 1) / 2}"
    flags += f" --ray-retries {kills + 3} --combos {','.join(f'{first}:{second}' for first, second in pairs)}"
    environment = {**ENVIRONMENT, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    environment.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "proud", "bench", str(data), *flags.split(), "--out", str(out)]
    job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    dead: set[int] = set()
    while killed < kills and job.poll() is None:
        living = [pid for pid in holders(out) if pid not in dead]
        if not living:
            time.sleep(0.05)
            continue
        time.sleep(chance.uniform(0, 1.0))
        victim = chance.choice(living)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
        dead.add(victim)
        killed += 1
    text, _ = job.communicate(timeout=600)
    assert job.returncode == 0, text[-3000:]
    assert killed == kills, f"the bench was over after {killed} kills"
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert Counter((row["labeled"], row["test"]) for row in rows) == Counter(pairs), "lost or done twice"
    for path in out.glob("runs/*/records.jsonl"):
        epochs = [(record["stage"], record["epoch"]) for record in map(json.loads, path.read_text().splitlines())]
        assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, 401)], path.parent.name
    return {"kills": killed, "jobs": len(rows), "lost_or_doubled": 0}


def holders(out: Path) -> list[int]:
    """Processes that hold a job."""
    found = []
    for path in (out / "locks").glob("*.lock"):
        try:
            found.append(int(json.loads(path.read_text())["pid"]))
        except (OSError, ValueError, KeyError):
            continue  # free, or being written
    return found
