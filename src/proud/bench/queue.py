"""The queue of a bench: one scheduler, whether jobs run here, in several processes or on a Ray cluster.

OUT/results.jsonl    one line per finished run: what is in it is not run again
OUT/runs/<job>/      the runs' own folders; a half-done one is resumed
OUT/locks/<job>.lock held by the worker that runs the job
OUT/shared/          work that several jobs have in common, see proud.bench.reuse

Any number of workers may share one folder. A worker attempts a job (`attempt`) and its scheduler settles the answer.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from proud.bench.claims import claim, owner
from proud.bench.plan import Job, Key, Plan
from proud.bench.results import (
    ResultRow,
    Results,
    check_same_images,
    check_same_settings,
    images_of,
    make_row,
    portable,
)
from proud.bench.reuse import Families, Tasks, WorkReuse, half_done_first
from proud.config import Options, RunConfig, flat
from proud.errors import UserError
from proud.files import replacing
from proud.machine import Stopped
from proud.model.format import read_result, read_run
from proud.text import one_line
from proud.training.loop import Progress
from proud.training.records import epochs_of, timings_of
from proud.training.run import train
from proud.training.run_folder import refuse_difference

WAIT_SECONDS = 1.0  # between looks at jobs that other workers hold
Deadline = Callable[[], bool]


class View(Protocol):
    """Who is notified of what happens."""

    def started(self, job: Job) -> None: ...
    def stepped(self, job: Job, now: Progress) -> None: ...
    def finished(self, job: Job, row: ResultRow) -> None: ...
    def failed(self, job: Job, error: UserError) -> None: ...
    def waiting(self, jobs: dict[Key, str]) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """`stopped` is empty when every job is done or has failed; otherwise "time" or "signal"."""

    stopped: str
    failures: dict[Key, str]


@dataclass(frozen=True)
class Answer:
    """What came of one attempt at a job: a row, an error for the user, who holds it, or nothing."""

    row: ResultRow | None = None
    error: str = ""
    held_by: str = ""
    stopped: bool = False


class Scheduler:
    """Which jobs are left, and what has come of the others."""

    def __init__(self, plan: Plan, folder: Path, view: View) -> None:
        self.plan, self.folder, self.view = plan, folder, view
        self.results = Results(folder / "results.jsonl")
        self.failures: dict[Key, str] = {}
        self.fatal: UserError | None = None

    def left(self, families: Families) -> list[Job]:
        """In the plan's order, but half-done jobs first."""
        done = self.results.done()
        families.update(done)
        left = [job for job in self.plan.jobs if job.key not in done and job.key not in self.failures]
        return half_done_first(left, self.folder)

    def settle(self, job: Job, answer: Answer) -> None:
        if answer.error and self._is_general(answer.error, job):
            self.fatal = UserError(answer.error)
        elif answer.error:
            self.failures[job.key] = answer.error
            self.view.failed(job, UserError(answer.error))
        elif answer.row is not None:
            self.view.finished(job, answer.row)

    def _is_general(self, error: str, job: Job) -> bool:
        """Whether an error stops the whole bench: two jobs had it, and it is not about their domains."""
        return error in self.failures.values() and not any(
            repr(name) in error for name in (job.run.labeled, job.run.test)
        )

    def outcome(self, stopped: str) -> Outcome:
        if self.fatal is not None:
            raise self.fatal
        return Outcome(stopped, self.failures)


def work(
    plan: Plan, folder: Path, tasks: Tasks, options: Options, view: View, deadline: Deadline = lambda: False
) -> Outcome:
    """Run jobs in this process, skipping those that other workers hold; wait for these, and take over those of a dead
    worker."""
    scheduler, reuse = Scheduler(plan, folder, view), WorkReuse(plan, folder, tasks, options)
    with Families(plan, folder) as families:
        while scheduler.fatal is None and (left := scheduler.left(families)):
            stopped, held = work_once(scheduler, reuse, left, options, deadline)
            if stopped:
                return scheduler.outcome(stopped)
            if held:
                view.waiting(held)
                time.sleep(WAIT_SECONDS)
    return scheduler.outcome("")


def work_once(
    scheduler: Scheduler, reuse: WorkReuse, left: Sequence[Job], options: Options, deadline: Deadline
) -> tuple[str, dict[Key, str]]:
    """Attempt the first job that is free. Returns why to stop, if so, and who holds the jobs if none is free."""
    held: dict[Key, str] = {}
    for place, job in enumerate(left):
        if deadline():
            return "time", {}
        watch = partial(_watch, job, scheduler.view, deadline)
        answer = attempt(
            reuse, job, left[:place], left, options, watch, results=scheduler.results, started=scheduler.view.started
        )
        if answer.stopped:
            return "time" if deadline() else "signal", {}
        if not answer.held_by:
            scheduler.settle(job, answer)
            return "", {}
        held[job.key] = answer.held_by
    return "", held


def _watch(job: Job, view: View, deadline: Deadline, now: Progress) -> None:
    view.stepped(job, now)
    if deadline():
        raise Stopped


def attempt(
    reuse: WorkReuse,
    job: Job,
    earlier: Sequence[Job],
    left: Sequence[Job],
    options: Options,
    watch: Callable[[Progress], None],
    results: Results | None = None,
    started: Callable[[Job], None] = lambda job: None,
) -> Answer:
    """Claim a job and run it. `earlier` and `left`: unfinished jobs before it, and all. With `results`, the row is
    added before the claim is released."""
    lock = reuse.folder / "locks" / f"{job.name}.lock"
    with claim(lock) as claimed:
        if not claimed:
            return Answer(held_by=owner(lock))
        if results is not None and job.key in results.done():  # finished by another worker since we looked
            return Answer()
        try:
            if reuse.must_wait(job, earlier):
                return Answer(held_by="another worker")
            started(job)
            row = run_job(reuse, job, left, options, watch)
            if results is not None:
                results.add(row)
            return Answer(row)
        except Stopped:
            return Answer(stopped=True)
        except UserError as error:
            return Answer(error=str(error))
        except Exception as error:  # the other jobs go on
            return Answer(error=unexpected(error, reuse.folder / "runs" / job.name))


def unexpected(error: Exception, path: Path) -> str:
    """One line for a failure that is not the user's, and the traceback in a file beside the run's folder."""
    told = path.with_name(f"{path.name}.error.txt")
    with replacing(told) as part:
        part.write_text("".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {one_line(error)} (traceback: {told})"


def run_job(
    reuse: WorkReuse, job: Job, left: Sequence[Job], options: Options, watch: Callable[[Progress], None]
) -> ResultRow:
    """One run from its current state to its result. The caller holds the job's claim."""
    path = reuse.folder / "runs" / job.name
    run = with_stored_place(job.run, path)
    options = replace(options, out=str(path), resume=True, overwrite=False, quiet=True)
    try:
        if (path / "run.json").is_file() and read_result(path) is not None:
            result = train(run, job.settings, options, watch=watch)
        else:
            task = reuse.tasks(run)
            known = Results(reuse.folder / "results.jsonl").rows()
            check_same_images([*known, job.key._asdict() | images_of(task.report)])
            result = train(run, job.settings, options, data=task, watch=watch, reuse=reuse.for_job(job, left))
    finally:
        gc.collect()  # networks and graphs of this run must not stay beside those of the next
    records, timings = epochs_of(path).read(), timings_of(path).read()
    return make_row(reuse.plan, job, read_run(path), result, records, timings)


def with_stored_place(run: RunConfig, path: Path) -> RunConfig:
    """A half-done run may continue although its data was moved: the bench reads the images itself."""
    if not (path / "run.json").is_file():
        return run
    stored = RunConfig.from_stored(read_run(path)["config"])
    return replace(run, root=stored.root, data=stored.data)


def check_folder(plan: Plan, folder: Path) -> None:
    """Refuse, before anything runs, results or half-done runs of other settings."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file, not a folder.")
    wanted = {job.run.method: portable(plan, job) for job in plan.jobs}
    rows = Results(folder / "results.jsonl").rows()
    other = {row["bench"] for row in rows} - {plan.bench}
    if other:
        raise UserError(
            f"{folder} holds results of {', '.join(sorted(other))}, not of {plan.bench}. Choose another --out."
        )
    check_same_settings(rows, wanted, folder)
    for job in plan.jobs:
        path = folder / "runs" / job.name
        if (path / "run.json").is_file():
            stored = read_run(path)["config"]
            refuse_difference(path, stored, flat(with_stored_place(job.run, path), job.settings))
