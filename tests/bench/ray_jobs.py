"""What the tests run on Ray: two benches on one cluster, with jobs that wait in the middle until they may go on."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from proud import machine
from proud.bench import ray_cluster
from proud.bench.queue import Answer
from proud.cli import bench
from proud.cli.flags.bench import BenchArguments
from proud.training import loop
from reliability.children import HERE, LIMIT, output_to, wait_until

run_remotely = ray_cluster.run_remotely


def two_benches(log: Path, arguments: BenchArguments, first: Path, second: Path) -> None:
    """In a child: the same bench twice. The exit code of each goes to `first` and `second`.

    The jobs wait in their third epoch until there is a file OUT/go, and the second bench waits for it too.
    """
    output_to(log)
    os.environ |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "CUDA_VISIBLE_DEVICES": ""}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])  # for Ray's processes
    os.environ.pop("RAY_ADDRESS", None)
    ray_cluster.run_remotely = run_with_a_pause
    with ray_cluster.cluster() as ray:
        ray_cluster.cluster = lambda: nullcontext(ray)
        write(first, bench.run(arguments))
        wait_until((Path(arguments.out) / "go").exists)
        write(second, bench.run(arguments))


def write(path: Path, code: int) -> None:
    path.with_suffix(".part").write_text(str(code))
    path.with_suffix(".part").rename(path)


def run_with_a_pause(plan: Any, job: Any, earlier: Any, left: Any, paths: Any, options: Any) -> Answer:
    """In a worker of Ray."""
    loop.CHECKPOINT_SECONDS = 0.0
    machine.GRACE_SECONDS = 0.2
    ray_cluster.unwatched = partial(pause, Path(paths.folder), job.name)
    return run_remotely(plan, job, earlier, left, paths, options)


def pause(folder: Path, name: str, now: loop.Progress) -> None:
    if now.stage == "main" and now.epoch == 3:
        (folder / f"waiting-{name}-{os.getpid()}").touch()
        end = time.monotonic() + LIMIT
        while not (folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.01)
