"""What the tests run on Ray: a cluster that lasts, and jobs that wait in the middle until they may go on."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from proud.bench import ray_cluster
from proud.bench.queue import Answer
from proud.bench.ray_cluster import cluster
from proud.training import loop
from reliability.children import HERE, command

run_remotely = ray_cluster.run_remotely


def keep_cluster(address: Path, over: Path) -> None:
    """In a child: a Ray cluster on this machine until `over` exists or the tests are gone."""
    tests = os.getppid()
    os.environ |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "CUDA_VISIBLE_DEVICES": ""}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])  # for the cluster's processes
    os.environ.pop("RAY_ADDRESS", None)
    with cluster() as ray:
        part = address.with_suffix(".part")
        part.write_text(ray.get_runtime_context().gcs_address)
        part.rename(address)
        while not over.exists() and os.getppid() == tests:
            time.sleep(0.05)


def bench_on_ray(log: Path, argv: list[str], address: str) -> None:
    """In a child: `proud bench --engine ray`. Its jobs wait in their third epoch until there is a file OUT/go."""
    os.environ["RAY_ADDRESS"] = address
    ray_cluster.run_remotely = run_with_a_pause
    command(log, argv)


def run_with_a_pause(plan: Any, job: Any, earlier: Any, left: Any, paths: Any, options: Any) -> Answer:
    """In a worker of Ray."""
    loop.CHECKPOINT_SECONDS = 0.0
    ray_cluster.unwatched = partial(pause, Path(paths.folder), job.name)
    return run_remotely(plan, job, earlier, left, paths, options)


def pause(folder: Path, name: str, now: loop.Progress) -> None:
    if now.stage == "main" and now.epoch == 3:
        (folder / f"waiting-{name}-{os.getpid()}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
