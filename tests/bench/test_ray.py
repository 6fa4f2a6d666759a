"""The queue on a real Ray of this machine: a worker killed on purpose, Ctrl-C, and every run there exactly once."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proud.bench.ray_cluster import cluster
from proud.bench.results import Results, key_of
from proud.cli.bench import BenchArguments
from proud.errors import UserError

Make = Callable[..., BenchArguments]
COMBOS = "one:two,two:one,one:three"


@pytest.fixture(autouse=True)
def needs_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        assert "CI" not in os.environ, "CI must install proud[dev], which has Ray"
        pytest.skip("Ray is not installed: pip install 'proud[ray]'")


def command(tiny: Path, out: Path, **changes: Any) -> list[str]:
    flags = {"methods": "erm", "seeds": "1", "combos": COMBOS, "epochs": 100, "pretrain-epochs": 1, "model": "digits"}
    flags |= {"weights": "none", "size": 16, "device": "cpu", "set": "batch_size=4", "out": out, "threads": 1}
    flags |= {"engine": "ray", "ray-cpus": (os.cpu_count() or 1) / 2} | changes
    words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    return [sys.executable, "-m", "proud", "bench", str(tiny), *words]


def start(tiny: Path, out: Path, **changes: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("RAY_ADDRESS", None)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command(tiny, out, **changes), env=environment, **pipes)


def workers(out: Path) -> dict[str, int]:
    """Job → process that holds it."""
    found = {}
    for path in (out / "locks").glob("*.lock"):
        if text := path.read_text():
            found[path.stem] = int(json.loads(text)["pid"])
    return found


def wait_for(condition: Callable[[], Any], job: subprocess.Popen[str], seconds: float = 300) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
    return found


def test_a_killed_worker_and_ctrl_c_lose_nothing_and_double_nothing(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = start(tiny, out)
    try:
        held = wait_for(lambda: len(workers(out)) > 1 and workers(out), job)
        assert len(set(held.values())) == len(held)  # a process each
        name, victim = next(iter(held.items()))
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: workers(out).get(name, victim) != victim, job)  # another process took it over
        wait_for(lambda: len(list(out.glob("runs/*/run.json"))) > 1, job)  # so that there is something half done
        job.send_signal(signal.SIGINT)
        text, _ = job.communicate(timeout=120)
        assert job.returncode == 130 and "The same command goes on" in text, text
    finally:
        job.kill()
    half_done = [path.parent.name for path in out.glob("runs/*/run.json")]
    assert len(half_done) > 1
    second = start(tiny, out)
    try:
        text, _ = second.communicate(timeout=400)
    finally:
        second.kill()
    assert second.returncode == 0, text
    rows = Results(out / "results.jsonl").rows()
    assert Counter(key_of(row)[1:3] for row in rows) == Counter(tuple(pair.split(":")) for pair in COMBOS.split(","))
    assert [row["test"] for row in rows if "shared" in row] == ["two"]  # one → three comes first, and serves it too
    for row in rows:
        records = (out / "runs" / f"erm-{row['labeled']}-{row['test']}-1" / "records.jsonl").read_text().splitlines()
        epochs = [(record["stage"], record["epoch"]) for record in map(json.loads, records)]
        assert epochs == [("pretrain", 1)] + [("main", epoch) for epoch in range(1, 101)]


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'proud\[ray\]'"), cluster():
        pass
