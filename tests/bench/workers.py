"""Benches in processes of their own, which tests may kill."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path

from proud.bench import queue
from proud.bench.plan import Job
from proud.bench.queue import View
from proud.cli import bench
from proud.cli.flags.bench import BenchArguments
from proud.training import loop
from reliability.children import output_to


def run_bench(log: Path, arguments: BenchArguments) -> None:
    """In a child: the bench; its output goes to `log`."""
    output_to(log)
    raise SystemExit(bench.run(arguments))


def get_stuck(log: Path, arguments: BenchArguments, test: str, epoch: int, stuck: Path) -> None:
    """In a child: a bench that never gets beyond this epoch of the run with this test domain. Creates `stuck` there."""
    loop.CHECKPOINT_SECONDS = 0.0
    watch = queue._watch

    def watch_and_stop(job: Job, view: View, deadline: Callable[[], bool], now: loop.Progress) -> None:
        watch(job, view, deadline, now)
        if (job.run.test, now.stage, now.epoch) == (test, "main", epoch):
            stuck.touch()
            signal.pause()

    queue._watch = watch_and_stop
    run_bench(log, arguments)


def run_bench_with_forks(log: Path, arguments: BenchArguments) -> None:
    """In a child: the same, and its own processes are forked, so that they need not import torch."""
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda kind: fork
    run_bench(log, arguments)
