"""`proud bench … --engine ray`: the queue on a Ray cluster. Ray finds the machines, we keep the books.

Every job is one Ray task that takes the job's claim, trains (or goes on from the last checkpoint, where all machines
share the folder --out) and answers with the finished row. The driver alone appends rows to results.jsonl, as they
come. A worker process or machine that dies is Ray's to notice: the task starts again elsewhere.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.bench.claims import claim, owner
from proud.bench.plan import Job, Key, Plan, fingerprint
from proud.bench.results import Results, Row
from proud.bench.reuse import Families, Sharer, family, half_done_first
from proud.bench.queue import Outcome, Tasks, View, is_general, run_job
from proud.config import Options
from proud.data.benchmarks import catalog_for
from proud.errors import UserError
from proud.files import write_json
from proud.training.loop import Stopped
from proud.machine import stop_signals

if TYPE_CHECKING:
    from proud.training.loop import Progress

LOOK_SECONDS = 1.0
STOP_SECONDS = 15.0  # for runs to end at their last checkpoint, before they are ended


@dataclass(frozen=True)
class Resources:
    """What one run takes of the cluster, and how often it is started again when its process or machine dies."""

    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = 3


@dataclass(frozen=True)
class Place:
    """Where things are, on the driver's machine and, by the same paths, on every other."""

    here: str
    folder: str
    data: str
    root: str

    @property
    def mark(self) -> Path:
        """A file of the driver: who sees it shares the folder."""
        return Path(self.folder) / "locks" / "driver"


def work_on_ray(
    plan: Plan,
    place: Place,
    options: Options,
    resources: Resources,
    view: View,
    deadline: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Like `worker.work`, with the runs elsewhere."""
    with cluster() as ray:
        engine = _Engine(ray, plan, place, options, resources, view)
        write_json(place.mark, {"host": socket.gethostname(), "pid": os.getpid()})
        with stop_signals() as asked, Families(plan, Path(place.folder)) as families:
            why = engine.run_until(lambda: "signal" if asked() else "time" if deadline() else "", families)
        engine.stop()
        if engine.fatal is not None:
            raise engine.fatal
        return Outcome(why, engine.failures)


@contextmanager
def cluster() -> Iterator[Any]:
    """The cluster of RAY_ADDRESS or of `ray start` on this machine, or else a Ray of our own on it."""
    try:
        import ray
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


class _Engine:
    def __init__(self, ray: Any, plan: Plan, place: Place, options: Options, resources: Resources, view: View) -> None:
        self.ray, self.plan, self.place, self.options, self.view = ray, plan, place, options, view
        self.results = Results(Path(place.folder) / "results.jsonl")
        self.failures: dict[Key, str] = {}
        self.fatal: UserError | None = None
        self.running: dict[Any, Job] = {}
        self.task = ray.remote(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=resources.retries, retry_exceptions=False
        )(run_remotely)

    def run_until(self, stop: Callable[[], str], families: Families) -> str:
        """All jobs, or as many as end before there is a reason to stop."""
        while not (why := stop()) and self.fatal is None:
            done = self.results.done()
            families.update(done)
            underway = {job.key for job in self.running.values()}
            left = [job for job in self.plan.jobs if job.key not in done and job.key not in self.failures]
            left = half_done_first(left, Path(self.place.folder))
            for place, job in enumerate(left):
                if job.key not in underway:
                    relatives = [
                        [other for other in some if family(other) == family(job)] for some in (left[:place], left)
                    ]
                    self.running[self.task.remote(self.plan, job, *relatives, self.place, self.options)] = job
            if not self.running:
                return ""
            self.view.waiting({job.key: "Ray" for job in self.running.values()})
            ready, _ = self.ray.wait(list(self.running), timeout=LOOK_SECONDS)
            for reference in ready:
                self.take(reference)
        return why

    def take(self, reference: Any) -> None:
        job = self.running.pop(reference)
        try:
            answer: dict[str, Any] = self.ray.get(reference)
        except Exception as error:  # Ray gave up: retries are spent, or the program itself is broken there
            answer = {"error": f"Ray gave up on it: {str(error).strip().splitlines()[0]}"}
        if "row" in answer:
            answer |= self.add(answer["row"])
        if "error" in answer:
            if is_general(answer["error"], job, self.failures):
                self.fatal = UserError(answer["error"])
                return
            self.failures[job.key] = answer["error"]
            self.view.failed(job, UserError(answer["error"]))
        elif "row" in answer:
            shutil.rmtree(Path(self.place.folder) / "runs" / job.name / "checkpoints", ignore_errors=True)
            self.view.finished(job, answer["row"])
        else:  # held by another bench, or by work it shares: it is asked for again, unless its line is there by then
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
            answer = self.ray.get(reference)
        except Exception:  # cancelled
            return
        if "row" in answer:
            self.add(answer["row"])

    def add(self, row: Row) -> dict[str, str]:
        """A result that does not belong here is that job's failure; the others go on."""
        try:
            self.results.add(row)
        except UserError as error:
            return {"error": str(error)}
        return {}


# ---- on the cluster


def run_remotely(
    plan: Plan, job: Job, earlier: list[Job], left: list[Job], place: Place, options: Options
) -> dict[str, Any]:
    """One of: the finished `row`; the `error` for the user; `held` by another bench or job; `stopped`.

    `earlier` and `left`: the jobs of its family that come before it, and all that are not done.
    """
    if Path(place.here).is_dir():
        os.chdir(place.here)  # relative paths mean what they mean to the driver
    if not place.mark.is_file():  # what others do cannot be seen here, nor can they see what is done
        earlier, left = [], []
    folder = Path(place.folder)
    lock = folder / "locks" / f"{job.name}.lock"
    try:
        with claim(lock) as ours:
            if not ours:
                return {"held": owner(lock)}
            sharer = Sharer(plan, folder, tasks_of(place.data, place.root, plan.data), options)
            if sharer.must_wait(job, earlier):
                return {"held": "another run"}
            return {"row": run_job(sharer, job, left, options, unwatched)}
    except UserError as error:
        return {"error": str(error)}
    except Stopped:
        return {"stopped": True}


@cache
def tasks_of(data: str, root: str, expected: str) -> Tasks:
    """A worker process decodes every domain once for all its runs."""
    catalog = catalog_for(data, root or None)
    name, _, mark = expected.rpartition(" ")
    if name and fingerprint(catalog) != mark:
        raise UserError(
            f"The images in {data} on {socket.gethostname()} are not those of the machine that started this."
        )
    return Tasks(catalog)


def unwatched(now: Progress) -> None:
    """Steps are not reported over the network; rows are."""
