"""Several runs at once on one device: each in a thread of this process, with a CUDA stream of its own.

A step of a small network leaves most of a GPU idle; steps of several runs fill it. Every run has its own parameters,
generators and graphs, so none depends on its neighbours. The threads share the queue as worker processes would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from proud.bench.plan import Plan
from proud.bench.worker import Outcome, Tasks, View, work
from proud.config import Options
from proud.training.machine import choose_device, stop_signals


class OneAtATime:
    """Calls of any method of the object, one after another."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._lock = inner, threading.RLock()

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            return self._inner(*arguments)

    def __getattr__(self, name: str) -> Any:
        return partial(self._locked, getattr(self._inner, name))

    def _locked(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        with self._lock:
            return method(*arguments, **named)


def work_side_by_side(
    threads: int, plan: Plan, folder: Path, tasks: Tasks, options: Options, view: View, deadline: Callable[[], bool]
) -> Outcome:
    """`work` in so many threads; what they did together."""
    cuda = choose_device(options.device).type == "cuda"
    shared_tasks, shared_view = OneAtATime(tasks), OneAtATime(view)

    def worker(stopped: Callable[[], bool]) -> Outcome:
        with torch.cuda.stream(torch.cuda.Stream()) if cuda else nullcontext():
            return work(plan, folder, shared_tasks, options, shared_view, lambda: deadline() or stopped())  # type: ignore[arg-type]

    with stop_signals() as stopped, ThreadPoolExecutor(threads) as pool:
        outcomes = [future.result() for future in [pool.submit(worker, stopped) for _ in range(threads)]]
        reason = "signal" if stopped() and not deadline() else next((o.stopped for o in outcomes if o.stopped), "")
    failures = {key: message for outcome in outcomes for key, message in outcome.failures.items()}
    return Outcome(reason, failures)
