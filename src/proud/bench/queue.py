"""A worker takes jobs from the queue until none is left. Any number of workers may share one folder.

OUT/results.jsonl    one line per finished run: what is in it is not run again
OUT/runs/<job>/      the runs' own folders; a half-done one is resumed
OUT/locks/<job>.lock held by the worker that runs the job
OUT/shared/          work that several jobs have in common, see proud.bench.reuse
"""

from __future__ import annotations

import gc
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from proud.bench.claims import claim, owner
from proud.bench.plan import Job, Key, Plan
from proud.bench.results import (
    Results,
    Row,
    check_same_images,
    check_same_settings,
    images_of,
    make_row,
    portable,
)
from proud.bench.reuse import Facts, Families, Sharer, facts_of, half_done_first
from proud.config import Options, RunConfig, flat
from proud.data.task import assemble
from proud.data.catalog import Catalog
from proud.data.types import Task
from proud.data.reader import Cache
from proud.errors import UserError
from proud.nets.models import model_spec
from proud.training.run_folder import read_result, read_run, refuse_difference
from proud.training.loop import Progress, Stopped
from proud.training.records import Records
from proud.training.run import train

WAIT_SECONDS = 1.0  # between looks at jobs that other workers hold


@dataclass
class Tasks:
    """Makes tasks of one catalog; every domain is decoded once."""

    catalog: Catalog
    progress: bool = False
    cache: Cache = field(default_factory=dict)
    known: dict[RunConfig, Facts] = field(default_factory=dict)

    def facts(self, run: RunConfig) -> Facts:
        """The same for all methods."""
        key = replace(run, method="")
        if key not in self.known:
            self.known[key] = facts_of(self(run))
        return self.known[key]

    def __call__(self, run: RunConfig) -> Task:
        return assemble(
            self.catalog,
            labeled=run.labeled,
            test=run.test,
            unlabeled=run.unlabeled,
            size=model_spec(run.model, 2, run.size or None).size,
            square=run.square,
            val=run.val,
            seed=run.seed,
            skip_bad=run.skip_bad,
            progress=self.progress,
            cache=self.cache,
            disk="auto",
        )


class View(Protocol):
    """Who is told what happens."""

    def started(self, job: Job) -> None: ...
    def stepped(self, job: Job, now: Progress) -> None: ...
    def finished(self, job: Job, row: Row) -> None: ...
    def failed(self, job: Job, error: UserError) -> None: ...
    def waiting(self, jobs: dict[Key, str]) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """`stopped` is empty when every job is done or has failed; otherwise "time" or "signal"."""

    stopped: str
    failures: dict[Key, str]


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
            refuse_difference(path, read_run(path)["config"], flat(moved(job.run, path), job.settings))


def moved(run: RunConfig, path: Path) -> RunConfig:
    """A half-done run may go on although its data lies elsewhere now: the bench reads the images itself."""
    stored = read_run(path)["config"] if (path / "run.json").is_file() else {}
    return replace(run, root=stored.get("root", run.root), data=stored.get("data", run.data))


def work(
    plan: Plan, folder: Path, tasks: Tasks, options: Options, view: View, deadline: Callable[[], bool] = lambda: False
) -> Outcome:
    """Run jobs in the plan's order, passing over those that other workers hold; wait for these, and take over a dead
    worker's."""
    results = Results(folder / "results.jsonl")
    sharer = Sharer(plan, folder, tasks, options)
    failures: dict[Key, str] = {}
    with Families(plan, folder) as families:
        while True:
            done = results.done()
            families.update(done)
            left = [job for job in plan.jobs if job.key not in done and job.key not in failures]
            left = half_done_first(left, folder)
            if not left:
                return Outcome("", failures)
            held: dict[Key, str] = {}
            for place, job in enumerate(left):
                if deadline():
                    return Outcome("time", failures)
                lock = folder / "locks" / f"{job.name}.lock"
                with claim(lock) as ours:
                    if not ours:
                        held[job.key] = owner(lock)
                        continue
                    if job.key in results.done():  # finished by another worker since we looked
                        break
                    try:
                        if sharer.must_wait(job, left[:place]):
                            held[job.key] = "another worker"
                            continue
                        view.started(job)
                        row = run_job(sharer, job, left, options, partial(watch, job, view, deadline))
                        results.add(row)
                    except Stopped:
                        return Outcome("time" if deadline() else "signal", failures)
                    except Exception as error:  # the others need not wait until somebody looks at this one
                        told = error if isinstance(error, UserError) else unexpected(error, folder / "runs" / job.name)
                        if is_general(str(told), job, failures):
                            raise
                        failures[job.key] = str(told)
                        view.failed(job, told)
                        break
                    shutil.rmtree(folder / "runs" / job.name / "checkpoints", ignore_errors=True)
                    view.finished(job, row)
                    break
            else:
                view.waiting(held)
                time.sleep(WAIT_SECONDS)


def is_general(told: str, job: Job, failures: dict[Key, str]) -> bool:
    """Whether an error stops the whole bench: two jobs met it, and it is not of their domains but of the machine."""
    return told in failures.values() and not any(repr(name) in told for name in (job.run.labeled, job.run.test))


def unexpected(error: Exception, path: Path) -> UserError:
    """For one job's failure that is nobody's input: a line, and the whole story in a file beside the run."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "error.txt").write_text("".join(traceback.format_exception(error)))
    text = " ".join(str(error).split())[:300]
    return UserError(f"{type(error).__name__}: {text} (all of it: error.txt in the run's folder)")


def watch(job: Job, view: View, deadline: Callable[[], bool], now: Progress) -> None:
    view.stepped(job, now)
    if deadline():
        raise Stopped


def run_job(sharer: Sharer, job: Job, left: Sequence[Job], options: Options, watch: Callable[[Progress], None]) -> Row:
    """One run from where it stands to its result. The caller holds the job's claim; `left` are all that wait."""
    path = sharer.folder / "runs" / job.name
    if path.is_dir() and not (path / "run.json").is_file():  # its worker died before it began
        shutil.rmtree(path)
    run = moved(job.run, path)
    finished = read_result(path) is not None
    here = replace(options, out=str(path), resume=True, overwrite=False, quiet=True)
    try:
        if finished:
            result = train(run, job.settings, here, watch=watch)
        else:
            task = sharer.tasks(run)
            known = Results(sharer.folder / "results.jsonl").rows()
            check_same_images([*known, job.key._asdict() | images_of(task.report)])
            sharing = sharer.sharing(job, left)
            result = train(run, job.settings, here, task=task, watch=watch, sharing=sharing)
    finally:
        gc.collect()  # networks and graphs of this run must not lie beside those of the next
    records, timings = (Records(path / f"{name}.jsonl").read() for name in ("records", "timings"))
    return make_row(sharer.plan, job, read_run(path), result, records, timings)
