"""Which jobs of a bench would do the same work, and which of them does it.

Jobs of one family differ in the test domain (and in settings that their first stage does not see). What they share is
decided by keys: of the whole training, where the method sees the labeled domain alone and takes as many steps; and of
the first stage, where that one does. The first of a family does the work, the others wait for it.

OUT/shared/<family>/<key>/   see proud.training.reuse; a family's folder goes when none of its jobs is left
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from proud.bench.claims import claim, use
from proud.bench.plan import Job, Key, Plan
from proud.bench.results import portable
from proud.config import Options
from proud.data.types import Task
from proud.errors import UserError
from proud.methods import method_class
from proud.methods.base import Stage
from proud.training.run_folder import read_run
from proud.training.loop import LAST_EPOCHS
from proud.machine import choose_device, code_of, environment, usual_threads
from proud.training.reuse import Sharing, is_kept

if TYPE_CHECKING:
    from proud.bench.queue import Tasks

LOOKED_AT_BYTES = 1 << 24  # of the labeled images, spread over all of them


class Facts(NamedTuple):
    """What a task says about work that may be shared: numbers of training images, and which the labeled ones are."""

    labeled: int
    unlabeled: tuple[int, ...]
    content: str


def facts_of(task: Task) -> Facts:
    labeled = task.training.labeled
    rows = max(1, LOOKED_AT_BYTES // labeled.images[0].numel())
    some = labeled.images[:: -(-len(labeled) // rows)].contiguous()
    content = hashlib.sha256(repr((labeled.classes, task.report["domains"][labeled.name])).encode())
    content.update(labeled.labels.numpy().tobytes())
    content.update(some.numpy().tobytes())
    return Facts(len(labeled), tuple(map(len, task.training.unlabeled)), content.hexdigest())


class Keys(NamedTuple):
    """Equal where the work is; empty where it cannot be shared."""

    training: str
    pretraining: str


def same_training(mine: Keys, other: Keys) -> bool:
    return bool(mine.training) and mine.training == other.training


def same_pretraining(mine: Keys, other: Keys) -> bool:
    """And no more than that."""
    return bool(mine.pretraining) and mine.pretraining == other.pretraining and not same_training(mine, other)


@dataclass(frozen=True)
class _Images:
    sizes: tuple[int, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes[:-1], initial=0))

    def __len__(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class _Numbers:
    labeled: _Images
    unlabeled: _Images


def planned_stages(job: Job, facts: Facts) -> list[Stage]:
    """They depend on settings and numbers of images: no network needs to be built for them."""
    kind = method_class(job.run.method)
    method: Any = kind.__new__(kind)
    method.config, method.context = job.settings, _Numbers(_Images((facts.labeled,)), _Images(facts.unlabeled))
    try:
        return method.stages()
    except AttributeError:  # it wants more: it shares nothing
        return []


def keys_of(plan: Plan, job: Job, facts: Facts, surroundings: dict[str, Any]) -> Keys:
    kind, stages = method_class(job.run.method), planned_stages(job, facts)
    alone = [set(stage.pools) == {"labeled"} for stage in stages]
    settings = {key: value for key, value in portable(plan, job).items() if key not in ("method", "test", "unlabeled")}
    training = pretraining = ""
    if stages and all(alone):
        training = digest("training", code_of(job.run.method), settings, stages, facts.content, surroundings)
    # what of the first stage counts as a result was measured on one test domain
    if stages and alone[0] and stages[0].epochs and sum(stage.epochs for stage in stages[1:]) >= LAST_EPOCHS:
        seen = settings | {"method_config": pretraining_settings(job)}
        seen_stages = stages if kind.LOOKS_AHEAD else stages[:1]
        pretraining = digest("pretraining", code_of(job.run.method), seen, seen_stages, facts.content, surroundings)
    return Keys(training, pretraining)


def pretraining_settings(job: Job) -> dict[str, Any]:
    # of the class itself: what one that builds upon it uses where, its own file alone can say
    unseen = {"epochs", *vars(method_class(job.run.method)).get("MAIN_ONLY", ())}
    return {key: value for key, value in asdict(job.settings).items() if key not in unseen}


@cache
def family(job: Job) -> str:
    """All jobs that may share anything, by what the plan alone says; the keys tell edited code apart."""
    kind = method_class(job.run.method)
    return digest(kind.__module__, kind.__qualname__, pretraining_settings(job), job.run.labeled, job.run.seed)


def digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=asdict)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class Sharer:
    """One worker's view of what is shared."""

    def __init__(self, plan: Plan, folder: Path, tasks: Tasks, options: Options) -> None:
        self.plan, self.folder, self.tasks = plan, folder, tasks
        about = environment(choose_device(options.device)) | {"threads": options.threads or usual_threads()}
        self.about, self.surroundings = about, about | {"fast": options.fast}

    def keys(self, job: Job) -> Keys:
        return keys_of(self.plan, job, self.tasks.facts(job.run), self.surroundings)

    def relatives(self, job: Job, jobs: Sequence[Job]) -> list[Keys]:
        """The keys of the others of its family that begin, or began, as they would here."""
        found = []
        for other in jobs:
            if other.key != job.key and family(other) == family(job):
                with suppress(UserError):  # what is wrong with it is told when its turn comes
                    if self.began_like_this(other):
                        found.append(self.keys(other))
        return found

    def must_wait(self, job: Job, earlier: Sequence[Job]) -> bool:
        """Whether a job before this one, which is not done, is doing what this one needs."""
        if is_half_done(job, self.folder) or not (relatives := self.relatives(job, earlier)):
            return False
        keys, place = self.keys(job), self.folder / "shared" / family(job)
        if any(same_training(keys, other) for other in relatives):
            return not is_kept(place / keys.training)
        return any(same_pretraining(keys, other) for other in relatives) and not is_kept(place / keys.pretraining)

    def sharing(self, job: Job, left: Sequence[Job]) -> Sharing | None:
        """What this job's run takes from others, and keeps for those that are left."""
        place = self.folder / "shared" / family(job)
        relatives = self.relatives(job, left)
        if not relatives and not place.is_dir():
            return None
        keys = self.keys(job)
        keeps = self.began_like_this(job)
        return Sharing(
            place,
            {"method": job.run.method, "test": job.run.test},
            *keys,
            keep_training=keeps and any(same_training(keys, other) for other in relatives),
            keep_pretraining=keeps and any(same_pretraining(keys, other) for other in relatives),
        )

    def began_like_this(self, job: Job) -> bool:
        """A run that began on another machine, or with other code, is not what the others would do here."""
        path = self.folder / "runs" / job.name
        if not (path / "run.json").is_file():
            return True
        stored = read_run(path)
        return all(stored.get(name) == value for name, value in self.about.items())


def is_half_done(job: Job, folder: Path) -> bool:
    return (folder / "runs" / job.name / "checkpoints").is_dir()


def half_done_first(jobs: Iterable[Job], folder: Path) -> list[Job]:
    """What was begun is the first of its family."""
    return sorted(jobs, key=lambda job: not is_half_done(job, folder))


class Families:
    """Those of which jobs are left. Several benches may work in one folder: what one of them needs nobody removes."""

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
        """Hold on to what is needed, and remove what families kept of which no job is left, here or elsewhere."""
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
                with claim(lock) as ours:
                    if ours:
                        shutil.rmtree(self.folder / "shared" / name, ignore_errors=True)
        with suppress(OSError):
            (self.folder / "shared").rmdir()
