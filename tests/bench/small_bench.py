"""A benchmark of four domains of noise, and benches over it that take seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proud.bench.plan import Job, Key
from proud.bench.queue import Outcome, check_folder, work
from proud.bench.results import Results
from proud.bench.reuse import Tasks
from proud.cli.bench import out_folder, prepare
from proud.cli.flags.bench import BenchArguments
from proud.config import Machine, NetSpec, Options, ReadSpec
from proud.errors import UserError
from proud.training.loop import Progress

DOMAINS = ("one", "two", "three", "four")
PARTS: dict[str, type] = {"reading": ReadSpec, "network": NetSpec, "machine": Machine}
Make = Callable[..., BenchArguments]
"""The fixture `arguments`."""


def bench_arguments(**flat: Any) -> BenchArguments:
    """From keywords without nesting: each goes to the part that has a field of that name."""
    parts = {}
    for part, kind in PARTS.items():
        names = flat.keys() & {field.name for field in fields(kind)}
        parts[part] = kind(**{name: flat.pop(name) for name in names})
    return BenchArguments(**flat, **parts)


def write_domains(
    root: Path, domains: tuple[str, ...], classes: list[str], per_class: int, side: int = 12, seed: int = 0
) -> Path:
    random = np.random.default_rng(seed)
    for domain in domains:
        for label in classes:
            folder = root / domain / label
            folder.mkdir(parents=True)
            for number in range(per_class):
                Image.fromarray(random.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return root


class Diary:
    """A view that notes which jobs start and finish, and may act on a step."""

    def __init__(self, on_step: Callable[[Job, Progress], None] = lambda job, now: None) -> None:
        self.began: list[Key] = []
        self.ended: list[Key] = []
        self.on_step = on_step

    def started(self, job: Job) -> None:
        self.began.append(job.key)

    def stepped(self, job: Job, now: Progress) -> None:
        self.on_step(job, now)

    def finished(self, job: Job, row: dict[str, Any]) -> None:
        self.ended.append(job.key)

    def failed(self, job: Job, error: UserError) -> None: ...

    def waiting(self, jobs: dict[Key, str]) -> None: ...


def work_on(arguments: BenchArguments, view: Diary, deadline: Callable[[], bool] = lambda: False) -> Outcome:
    """The bench without its output."""
    catalog, plan = prepare(arguments)
    folder = out_folder(arguments)
    check_folder(plan, folder)
    return work(plan, folder, Tasks(catalog), Options(device="cpu", threads=1), view, deadline)


def after(looks: int) -> Callable[[], bool]:
    """A deadline that has passed once it was looked at so often."""
    left = [looks]

    def passed() -> bool:
        left[0] -= 1
        return left[0] < 0

    return passed


def rows_of(arguments: BenchArguments) -> list[dict[str, Any]]:
    return Results(out_folder(arguments) / "results.jsonl").rows()
