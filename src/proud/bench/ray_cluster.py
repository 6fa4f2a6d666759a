"""`proud bench … --engine ray`: the queue on a Ray cluster. Ray finds the machines, the scheduler tracks the results.

Every job is one Ray task that attempts the job (resuming from the last checkpoint, if all machines share the folder
--out) and returns the answer. Only the driver appends rows to results.jsonl, as they come. Ray notices a worker process
or machine that dies, and starts the task again elsewhere.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.bench.plan import Job, Plan, fingerprint
from proud.bench.queue import Answer, Deadline, Outcome, Scheduler, View, attempt
from proud.bench.results import ResultRow
from proud.bench.reuse import Families, Tasks, WorkReuse, family
from proud.config import Options
from proud.data.benchmarks import open_catalog
from proud.errors import UserError
from proud.files import write_json
from proud.machine import Stopped, stop_signals

if TYPE_CHECKING:
    from proud.training.loop import Progress

LOOK_SECONDS = 1.0
STOP_SECONDS = 15.0  # for runs to end at their last checkpoint, before they are killed


@dataclass(frozen=True)
class Resources:
    """What one run takes of the cluster, and how often it is started again when its process or machine dies."""

    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3


@dataclass(frozen=True)
class SharedPaths:
    """Paths on the driver's machine, assumed to be the same on all workers."""

    here: str
    folder: str
    data: str
    root: str

    @property
    def mark(self) -> Path:
        """A file of the driver: a worker that sees it shares the folder."""
        return Path(self.folder) / "locks" / "driver"


def work_on_ray(
    plan: Plan,
    paths: SharedPaths,
    options: Options,
    resources: Resources,
    view: View,
    deadline: Deadline = lambda: False,
) -> Outcome:
    """Like `queue.work`, with the runs elsewhere."""
    with cluster() as ray:
        driver = Driver(ray, Scheduler(plan, Path(paths.folder), view), paths, options, resources)
        write_json(paths.mark, {"host": socket.gethostname(), "pid": os.getpid()})
        with stop_signals() as should_stop, Families(plan, Path(paths.folder)) as families:
            try:
                why = driver.run_until(lambda: "signal" if should_stop() else "time" if deadline() else "", families)
            except Stopped:  # in the middle of a look that took too long
                why = "signal"
        driver.stop()
        return driver.scheduler.outcome(why)


@contextmanager
def cluster() -> Iterator[Any]:
    """The cluster of RAY_ADDRESS or of `ray start` on this machine, or else a new one on it."""
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise UserError("--engine ray needs Ray: pip install 'proud[ray]'.") from error
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a run that takes no GPU sees none
    try:
        ray.init(log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"--engine ray: no Ray cluster can be reached or started ({error}).") from error
    try:
        yield ray
    finally:
        ray.shutdown()


class Driver:
    def __init__(
        self, ray: Any, scheduler: Scheduler, paths: SharedPaths, options: Options, resources: Resources
    ) -> None:
        self.ray, self.scheduler, self.paths, self.options = ray, scheduler, paths, options
        self.running: dict[Any, Job] = {}
        self.task = ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=resources.retries, retry_exceptions=False
        )(run_remotely)

    def run_until(self, stop: Callable[[], str], families: Families) -> str:
        """All jobs, or as many as end before there is a reason to stop."""
        while not (why := stop()) and self.scheduler.fatal is None:
            self.submit(self.scheduler.left(families))
            if not self.running:
                return ""
            self.scheduler.view.waiting({job.key: "Ray" for job in self.running.values()})
            ready, _ = self.ray.wait(list(self.running), timeout=LOOK_SECONDS)
            for reference in ready:
                self.take(reference)
        return why

    def submit(self, left: list[Job]) -> None:
        underway = {job.key for job in self.running.values()}
        for place, job in enumerate(left):
            if job.key not in underway:
                relatives = [[other for other in some if family(other) == family(job)] for some in (left[:place], left)]
                reference = self.task.remote(self.scheduler.plan, job, *relatives, self.paths, self.options)
                self.running[reference] = job

    def take(self, reference: Any) -> None:
        job = self.running.pop(reference)
        try:
            answer: Answer = self.ray.get(reference)
        except Exception as error:  # retries are spent, or the program itself is broken there
            first, *_ = str(error).strip().splitlines() or [type(error).__name__]
            answer = Answer(error=f"Ray could not run this job: {first}")
        if answer.row is not None:
            answer = self.add(answer.row)
        self.scheduler.settle(job, answer)
        if answer.held_by:  # by another bench, or by work it shares: it is submitted again, unless it is done by then
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Runs stop at their last checkpoint; finished ones are not lost."""
        if not self.running:
            return
        for reference in self.running:
            self.ray.cancel(reference, force=False)
        ready, late = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=STOP_SECONDS)
        for reference in ready:
            self.take_finished(reference)
        for reference in late:
            self.ray.cancel(reference, force=True)

    def take_finished(self, reference: Any) -> None:
        try:
            answer: Answer = self.ray.get(reference)
        except Exception:  # cancelled
            return
        if answer.row is not None:
            self.add(answer.row)

    def add(self, row: ResultRow) -> Answer:
        """A result that does not belong here is that job's failure; the others go on."""
        try:
            self.scheduler.results.add(row)
        except UserError as error:
            return Answer(error=str(error))
        return Answer(row)


# ---- on the cluster


def run_remotely(
    plan: Plan, job: Job, earlier: list[Job], left: list[Job], paths: SharedPaths, options: Options
) -> Answer:
    """`earlier` and `left`: the jobs of its family that come before it, and all that are not done."""
    if Path(paths.here).is_dir():
        os.chdir(paths.here)  # relative paths mean the same as for the driver
    if not paths.mark.is_file():  # other workers' files are not visible here, nor ours to them
        earlier, left = [], []
    try:
        tasks = tasks_of(paths.data, paths.root, plan.data, options.cache, job.run.follow_links)
        return attempt(WorkReuse(plan, Path(paths.folder), tasks, options), job, earlier, left, options, unwatched)
    except UserError as error:
        return Answer(error=str(error))


@cache
def tasks_of(data: str, root: str, expected: str, disk: str, follow_links: bool) -> Tasks:
    """A worker process decodes every domain once for all its runs."""
    catalog = open_catalog(data, root, follow_links)
    name, _, mark = expected.rpartition(" ")
    if name and fingerprint(catalog) != mark:
        raise UserError(f"The images in {data} on {socket.gethostname()} differ from those on the driver's machine.")
    return Tasks(catalog, cache=disk)


def unwatched(now: Progress) -> None:
    """Steps are not reported over the network; rows are."""
