"""How long a run will take, and how much memory and disk it needs: from its first steps, and then from all of them.

The shares of the stages are measured before with a copy of the method; the steps that are timed are the run's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from proud.data.types import Task
from proud.machine import Memory, computes_bf16
from proud.methods.base import Method, Stage
from proud.methods.workload import Seconds, count_work, kind_of, time_work
from proud.text import duration, file_size
from proud.training.checkpoint import KEPT
from proud.training.loop import Progress
from proud.training.memory import is_out_of_memory

BACKWARD = 3.0  # an image forward and backward costs about three times an image forward
TIMED_STEPS = 3
TIMED_SECONDS = 2.0
LONG_STEPS = 20.0  # seconds after which one timed step is enough
LONG_ON_CPU = 1800.0  # seconds
SMALL_FILES = 10e6  # bytes: records, snapshots, outputs


@dataclass(frozen=True)
class Estimate:
    """What the whole run needs, its past part included."""

    seconds: float
    memory: float
    """peak, in bytes: the GPU's, or the process's"""
    disk: float
    """bytes, at most, while it trains"""
    device: str
    advice: str = ""

    def __str__(self) -> str:
        where = "GPU" if self.device == "cuda" else "CPU"
        needs = f"{file_size(self.memory)} of memory and {file_size(self.disk)} of disk space"
        return f"Estimate: {duration(self.seconds)} on this {where}; {needs}.{self.advice}"


class StageWork(NamedTuple):
    """One stage, in units that are the same for all of a run: forward passes of one image, or seconds."""

    stage: Stage
    step: float
    around: float
    """per epoch, outside the steps: passes over all images, evaluation"""
    in_memory: float
    """images that pass forward and backward in one step"""

    @property
    def total(self) -> float:
        return self.stage.epochs * (self.around + self.stage.steps * self.step)


class Forecast:
    """Between the loop and its watcher: times what passes, and adds the time left to it."""

    def __init__(
        self,
        watch: Callable[[Progress], None],
        work: Sequence[StageWork],
        memory: Memory,
        disk: float,
        advice: str,
        trainings: int = 1,
        ending: float = 0.0,
    ) -> None:
        self.watch, self.memory, self.disk, self.advice = watch, memory, disk, advice
        self.work = {each.stage.name: each for each in work}
        totals = [each.total for each in work]
        self.total = trainings * sum(totals) + ending
        self.before = dict(zip(self.work, accumulate(totals, initial=0.0), strict=False))
        self.seconds_per_unit = 0.0  # of the newest stage that was timed
        self.stage = ""
        self.timed = (0, 0.0, 0.0)  # steps, seconds, units of this stage
        self.last: tuple[float, float] | None = None  # time and units done when something last passed
        self.estimated = False

    def __call__(self, now: Progress) -> None:
        if now.stage not in self.work:
            self.watch(now)
            return
        done = self._done(now)
        left = self._left(now, done, time.perf_counter())
        estimate = None
        if left is not None and not self.estimated and self._is_reliable():
            self.estimated = True
            estimate = self._estimate(now.stage, left, done)
        self.watch(replace(now, left=left, estimate=estimate))

    def _done(self, now: Progress) -> float:
        work = self.work[now.stage]
        epoch = work.around + work.stage.steps * work.step
        begun = now.step > 0 or now.record is not None
        return self.before[now.stage] + (now.epoch - 1) * epoch + begun * work.around + now.step * work.step

    def _left(self, now: Progress, done: float, at: float) -> float | None:
        """The stages to come are timed by the present one, until they begin."""
        if now.stage != self.stage:  # what starts up or is compiled with its first step does not count
            self.stage, self.timed, self.last = now.stage, (0, 0.0, 0.0), None
        if now.step and self.last is not None:
            steps, seconds, units = self.timed
            self.timed = (steps + 1, seconds + at - self.last[0], units + done - self.last[1])
        self.last = (at, done) if now.step else self.last
        if self.timed[2]:
            self.seconds_per_unit = self.timed[1] / self.timed[2]
        return self.seconds_per_unit * max(0.0, self.total - done) if self.seconds_per_unit else None

    def _is_reliable(self) -> bool:
        steps, seconds, _ = self.timed
        return (steps >= TIMED_STEPS and seconds >= TIMED_SECONDS) or seconds >= LONG_STEPS

    def _estimate(self, stage: str, left: float, done: float) -> Estimate:
        largest = max(each.in_memory for each in self.work.values())
        memory = self.memory.scaled(largest / max(1.0, self.work[stage].in_memory))
        seconds = left + self.seconds_per_unit * done
        slow = seconds > LONG_ON_CPU and self.memory.device.type == "cpu"
        return Estimate(seconds, memory, self.disk, self.memory.device.type, f" {self.advice}" if slow else "")


def forecasting(
    watch: Callable[[Progress], None], method: Method, task: Task, eval_every: int, trainings: int = 1
) -> Callable[[Progress], None]:
    """The watcher with estimates; without them where the memory is too small: the first real step then says what
    would fit."""
    try:
        return forecast(watch, method, task, eval_every, trainings)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return watch


def forecast(
    watch: Callable[[Progress], None], method: Method, task: Task, eval_every: int, trainings: int = 1
) -> Forecast:
    """On a CPU, the shares of the stages are timed; on a GPU, where steps are compiled later, images are counted.

    `trainings`: how often the whole is trained, folds included.
    """
    context, stages = method.context, method.stage_list()
    counted = count_work(type(method), method.config)
    timed = time_work(method, task.training) if context.device.type == "cpu" else {}
    sets = (task.evaluation.validation, task.evaluation.test)
    evaluated = sum(len(domain) for domain in sets if domain is not None) / eval_every
    images = context.sizes.labeled + sum(context.sizes.unlabeled)
    batch = method.config.batch_size
    work, ending = [], 0.0
    for stage in stages:
        images_of, seconds = counted[kind_of(stage)], timed.get(kind_of(stage))
        cost = seconds or Seconds(BACKWARD * images_of.trained + images_of.seen, images_of.passed, 1.0)
        around = cost.passed * images + cost.forward * evaluated
        work.append(StageWork(stage, batch * cost.step, around, batch * images_of.trained))
        ending = cost.passed * images + cost.forward * (2 * images + evaluated * eval_every)  # as in `finish`
    state = sum(tensor.numel() * tensor.element_size() for tensor in method.state_dict().values())
    disk = (KEPT + 1) * state + SMALL_FILES
    return Forecast(watch, work, Memory(context.device), disk, faster(method), trainings, ending)


def faster(method: Method) -> str:
    """The flags that shorten a run on a CPU."""
    spec, config = method.context.spec, method.config
    precision = "--precision bf16, " if method.context.precision == "fp32" and computes_bf16() else ""
    size = "" if spec.size < 64 else f"a smaller --size (now {spec.size}), "
    return (
        f"Faster: {precision}{size}fewer --epochs (now {config.epochs}) or --pretrain-epochs (now "
        f"{config.pretrain_epochs}), or a smaller --model (now {spec.name}). A smaller --batch-size (now "
        f"{config.batch_size}) needs less memory."
    )
