"""Which jobs of a bench would do the same work, and which of them does it.

Jobs of one family differ in the test domain, and in settings that their first stage does not depend on. What they share
is decided by keys: of the whole training, if the method sees the labeled domain alone and takes as many steps; and of
the first stage, if that one does. The first of a family does the work, the others wait for it.

OUT/shared/<family>/<key>/   see proud.training.reuse; a family's folder is removed when none of its jobs is left
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from proud.bench.claims import claim, use
from proud.bench.plan import Job, Key, Plan
from proud.bench.results import portable
from proud.config import Options, RunConfig
from proud.data.catalog import Catalog
from proud.data.reader import MemoryCache
from proud.data.source import find_task
from proud.data.types import Task
from proud.errors import UserError
from proud.machine import choose_device, default_threads, environment
from proud.methods import code_of, method_class
from proud.methods.base import Sizes, Stage
from proud.model.format import read_run
from proud.training.loop import LAST_EPOCHS
from proud.training.reuse import Reuse, is_kept
from proud.training.run import load

HASHED_BYTES = 1 << 24  # of the labeled images, spread over all of them


class Facts(NamedTuple):
    """What decides whether tasks share work: numbers of training images, and which the labeled ones are."""

    sizes: Sizes
    content: str


@dataclass
class Tasks:
    """Makes tasks of one catalog; every domain is decoded once."""

    catalog: Catalog
    progress: bool = False
    cache: str = "auto"
    memory: MemoryCache = field(default_factory=dict)
    known: dict[RunConfig, Facts] = field(default_factory=dict)

    def __call__(self, run: RunConfig) -> Task:
        source = find_task(run, self.catalog)
        return load(run, source, progress=self.progress, cache=self.cache, memory=self.memory)[0]

    def facts(self, run: RunConfig) -> Facts:
        """The same for all methods."""
        key = replace(run, method="")
        if key not in self.known:
            self.known[key] = facts_of(self(run))
        return self.known[key]


def facts_of(task: Task) -> Facts:
    labeled = task.training.labeled
    rows = max(1, HASHED_BYTES // labeled.images[0].numel())
    some = labeled.images[:: -(-len(labeled) // rows)].contiguous()
    content = hashlib.sha256(repr((labeled.classes, task.report["domains"][labeled.name])).encode())
    content.update(labeled.labels.numpy().tobytes())
    content.update(some.numpy().tobytes())
    return Facts(Sizes(len(labeled), tuple(map(len, task.training.unlabeled))), content.hexdigest())


class Keys(NamedTuple):
    """Equal where the work is the same; empty where it cannot be shared."""

    training: str
    pretraining: str


def same_training(mine: Keys, other: Keys) -> bool:
    return bool(mine.training) and mine.training == other.training


def same_pretraining(mine: Keys, other: Keys) -> bool:
    """And no more than that."""
    return bool(mine.pretraining) and mine.pretraining == other.pretraining and not same_training(mine, other)


def keys_of(plan: Plan, job: Job, facts: Facts, surroundings: dict[str, Any]) -> Keys:
    stages = method_class(job.run.method).stages(job.settings, facts.sizes)
    alone = [set(stage.pools) == {"labeled"} for stage in stages]
    settings = {key: value for key, value in portable(plan, job).items() if key not in ("method", "test", "unlabeled")}
    code = code_of(job.run.method)
    training = pretraining = ""
    if all(alone):
        training = digest("training", code, settings, lengths(stages), facts.content, surroundings)
    # epochs of the first stage that count as a result were measured on one test domain
    if alone[0] and stages[0].epochs and sum(stage.epochs for stage in stages[1:]) >= LAST_EPOCHS:
        seen = settings | {"method_config": pretraining_settings(job)}
        seen_stages = stages if stages[0].sees_ahead else stages[:1]
        pretraining = digest("pretraining", code, seen, lengths(seen_stages), facts.content, surroundings)
    return Keys(training, pretraining)


def lengths(stages: Sequence[Stage]) -> list[Any]:
    return [[stage.name, stage.epochs, stage.steps, stage.pools] for stage in stages]


def pretraining_settings(job: Job) -> dict[str, Any]:
    """The settings that the first stage depends on.

    Of the class itself: a class that inherits its stages may use settings elsewhere, so it shares only with its like.
    """
    kind = method_class(job.run.method)
    declared = kind.stages(job.settings, Sizes(1, (1,)))[0].settings if "stages" in vars(kind) else None
    every = {key: value for key, value in asdict(job.settings).items() if key != "epochs"}
    return every if declared is None else {key: value for key, value in every.items() if key in declared}


@cache
def family(job: Job) -> str:
    """All jobs that may share anything, by the plan alone; the keys distinguish edited code."""
    kind = method_class(job.run.method)
    return digest(kind.__module__, kind.__qualname__, pretraining_settings(job), job.run.labeled, job.run.seed)


def digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


class WorkReuse:
    """What the jobs of a plan can take from each other, as one worker sees it."""

    def __init__(self, plan: Plan, folder: Path, tasks: Tasks, options: Options) -> None:
        self.plan, self.folder, self.tasks = plan, folder, tasks
        self.about = environment(choose_device(options.device))
        self.about |= {"threads": options.threads or default_threads()}
        self.surroundings = self.about | {"steps": options.steps}

    def keys(self, job: Job) -> Keys:
        return keys_of(self.plan, job, self.tasks.facts(job.run), self.surroundings)

    def relatives(self, job: Job, jobs: Sequence[Job]) -> list[Keys]:
        """The keys of the others of its family that start, or started, as they would here."""
        found = []
        for other in jobs:
            if other.key != job.key and family(other) == family(job):
                with suppress(UserError):  # its problem is reported when its turn comes
                    if self.started_here(other):
                        found.append(self.keys(other))
        return found

    def must_wait(self, job: Job, earlier: Sequence[Job]) -> bool:
        """Whether an earlier, unfinished job is doing what this one needs."""
        if is_half_done(job, self.folder) or not (relatives := self.relatives(job, earlier)):
            return False
        keys, place = self.keys(job), self.folder / "shared" / family(job)
        if any(same_training(keys, other) for other in relatives):
            return not is_kept(place / keys.training)
        return any(same_pretraining(keys, other) for other in relatives) and not is_kept(place / keys.pretraining)

    def for_job(self, job: Job, left: Sequence[Job]) -> Reuse | None:
        """What this job's run takes from others, and keeps for those that are left."""
        place = self.folder / "shared" / family(job)
        relatives = self.relatives(job, left)
        if not relatives and not place.is_dir():
            return None
        keys = self.keys(job)
        keeps = self.started_here(job)
        return Reuse(
            place,
            {"method": job.run.method, "test": job.run.test},
            *keys,
            keep_training=keeps and any(same_training(keys, other) for other in relatives),
            keep_pretraining=keeps and any(same_pretraining(keys, other) for other in relatives),
        )

    def started_here(self, job: Job) -> bool:
        """Whether the run, if it has started, did so on such a machine and with this code."""
        path = self.folder / "runs" / job.name
        if not (path / "run.json").is_file():
            return True
        stored = read_run(path)
        return all(stored.get(name) == value for name, value in self.about.items())


def is_half_done(job: Job, folder: Path) -> bool:
    return (folder / "runs" / job.name / "checkpoints").is_dir()


def half_done_first(jobs: Iterable[Job], folder: Path) -> list[Job]:
    """A half-done job is the first of its family."""
    return sorted(jobs, key=lambda job: not is_half_done(job, folder))


class Families:
    """Those with unfinished jobs. Several benches may work in one folder: what any of them needs is not removed."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        members = Counter(family(job) for job in plan.jobs)
        self.names = [name for name, count in members.items() if count > 1]
        self.used: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.used):
            os.close(self.used.pop(name))

    def update(self, done: set[Key]) -> None:
        """Hold on to what is needed, and remove what families kept that have no jobs left, here or elsewhere."""
        needed = {family(job) for job in self.plan.jobs if job.key not in done}
        for name in self.names:
            lock = self.folder / "locks" / f"{name}.shared"
            if name in needed:
                if name not in self.used:
                    self.used[name] = use(lock)
                continue
            if name in self.used:
                os.close(self.used.pop(name))
            if (self.folder / "shared" / name).is_dir():
                with claim(lock) as claimed:
                    if claimed:
                        shutil.rmtree(self.folder / "shared" / name, ignore_errors=True)
        with suppress(OSError):
            (self.folder / "shared").rmdir()
