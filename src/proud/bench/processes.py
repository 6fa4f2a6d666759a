"""Several runs at once on one device, each in a process of its own.

A step of a small network leaves most of a GPU idle; steps of several runs fill it. The processes share the queue like
workers started by hand: they are independent, and the job of a dead one is taken over.
"""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from proud.bench.plan import Job, Key, Plan
from proud.bench.queue import Outcome, View, work
from proud.bench.results import ResultRow, Results
from proud.bench.reuse import Tasks
from proud.config import Options
from proud.data.catalog import Catalog
from proud.errors import UserError
from proud.machine import Stopped, stop_signals
from proud.training.loop import Progress

LOOK_SECONDS = 0.5


class Reporter:
    """A worker's view: sends messages to the first process."""

    def __init__(self, messages: Queue[tuple[Any, ...]], number: int) -> None:
        self.messages, self.number = messages, number

    def started(self, job: Job) -> None:
        self.messages.put(("started", self.number, job))

    def stepped(self, job: Job, now: Progress) -> None:
        pass

    def finished(self, job: Job, row: ResultRow) -> None:
        self.messages.put(("finished", self.number, job, row))

    def failed(self, job: Job, error: UserError) -> None:
        self.messages.put(("failed", self.number, job, error))

    def waiting(self, jobs: dict[Key, str]) -> None:
        pass


def work_side_by_side(
    processes: int,
    plan: Plan,
    folder: Path,
    catalog: Catalog,
    options: Options,
    view: View,
    deadline: Callable[[], bool],
) -> Outcome:
    """`work` in so many processes, and their common outcome."""
    context = multiprocessing.get_context("spawn")
    messages: Queue[tuple[Any, ...]] = context.Queue()
    stop = context.Event()
    workers = [
        context.Process(target=_work, args=(number, plan, folder, catalog, options, stop, messages), daemon=True)
        for number in range(processes)
    ]
    together, reason = _Together(view), ""
    with stop_signals() as should_stop:
        try:
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                reason = reason or ("signal" if should_stop() else "time" if deadline() else "")
                if reason:
                    stop.set()
                together.listen(messages, LOOK_SECONDS)
            while together.listen(messages, 0.1):
                pass
        except Stopped:
            return Outcome(reason or "signal", together.failures)
        finally:
            for worker in workers:
                worker.terminate()
    left = {job.key for job in plan.jobs} - Results(folder / "results.jsonl").done()
    return together.outcome(reason, [worker.exitcode for worker in workers if worker.exitcode], bool(left))


class _Together:
    """The messages of all workers."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.running: dict[int, Job] = {}
        self.failures: dict[Key, str] = {}
        self.fatal: UserError | None = None

    def listen(self, messages: Queue[tuple[Any, ...]], seconds: float) -> bool:
        try:
            what, number, *rest = messages.get(timeout=seconds)
        except queue.Empty:
            return False
        self.running.pop(number, None)
        if what == "started":
            self.running[number] = rest[0]
        elif what == "finished":
            self.failures.pop(rest[0].key, None)  # of another process that tried it
            self.view.finished(rest[0], rest[1])
        elif what == "failed":
            self.failures[rest[0].key] = str(rest[1])
            self.view.failed(rest[0], rest[1])
        else:
            self.fatal = rest[0]
        self.view.waiting({job.key: f"process {place + 1}" for place, job in self.running.items()})
        return True

    def outcome(self, reason: str, codes: list[int], unfinished: bool) -> Outcome:
        if self.fatal is not None:
            raise self.fatal
        if codes and unfinished and not reason:
            raise UserError(
                f"{len(codes)} of the processes ended unexpectedly (exit code {codes[0]}); their output is above. "
                "The same command continues."
            )
        return Outcome(reason, self.failures)


def _work(
    number: int, plan: Plan, folder: Path, catalog: Catalog, options: Options, stop: Event, messages: Queue[Any]
) -> None:
    parent = multiprocessing.parent_process()

    def over() -> bool:
        return stop.is_set() or (parent is not None and not parent.is_alive())  # killed: nobody listens

    try:
        work(plan, folder, Tasks(catalog, cache=options.cache), options, Reporter(messages, number), over)
    except UserError as error:
        messages.put(("fatal", number, error))
