"""What a method's stages cost: images through its networks, counted on a tiny task, or seconds on a few of the run's
own images. Both are measured with a copy of the method: the run itself is not touched.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from proud.data.synthetic import synthetic_task
from proud.data.types import TrainingData
from proud.methods.base import Method, MethodConfig, Stage
from proud.methods.context import make_context
from proud.nets.forward import forward_all
from proud.nets.models import Net, model_spec
from proud.randomness import Randomness

TINY: dict[str, Any] = {"labeled": 16, "unlabeled": (16, 16), "test": 4, "classes": 2, "size": 16}
IMAGES = TINY["labeled"] + sum(TINY["unlabeled"])
BATCH = 4
FEWEST = 32  # images of a domain


class Work(NamedTuple):
    """The images of one kind of stage."""

    trained: float
    """forward and backward in one step, over the batch size"""
    seen: float
    """forward alone in one step, over the batch size"""
    passed: float
    """forward before the first step of an epoch, over the number of all training images"""


def kind_of(stage: Stage) -> str:
    """Stages that differ in a number alone (`adapt-1-2`, `adapt-2-1`) cost the same per step."""
    return re.sub(r"(-\d+)+$", "", stage.name)


def count_work(kind: type[Method], config: MethodConfig) -> dict[str, Work]:
    """The work of each kind of stage."""
    task = synthetic_task(TINY)
    spec = model_spec("digits", TINY["classes"], TINY["size"])
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=0, precision="fp32")
    method = kind(replace(config, batch_size=BATCH), context)
    trained: list[int] = []
    seen: list[int] = []

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        learns = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters())
        (trained if learns else seen).append(len(inputs[0]))

    for backbone in {id(net): net.backbone for net in networks(method)}.values():
        backbone.register_forward_pre_hook(count)
    found: dict[str, Work] = {}
    random = Randomness(0, torch.device("cpu"))
    for stage in each_kind(method):
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        passed = sum(seen)
        trained.clear()
        seen.clear()
        rows = {pool: random.rows(pool, population, 1, BATCH)[0] for pool, population in stage.pools.items()}
        method.step(stage, rows, random.draws(method.draws(stage)), method.losses)
        found[kind_of(stage)] = Work(sum(trained) / BATCH, sum(seen) / BATCH, passed / IMAGES)
        seen.clear()
    return found


class Seconds(NamedTuple):
    """The time of one kind of stage."""

    step: float
    """of one step, over the batch size"""
    passed: float
    """before the first step of an epoch, over the number of all training images"""
    forward: float
    """of evaluation, per image"""


def time_work(method: Method, training: TrainingData) -> dict[str, Seconds]:
    """The time of each kind of stage, from two steps with a quarter of the batch."""
    context, config = method.context, method.config
    batch = max(min(2, config.batch_size), config.batch_size // 4)
    few = few_images(training, max(FEWEST, 2 * batch))
    small = make_context(
        few, context.spec, context.device, weights="none", seed=context.seed, precision=context.precision
    )
    probe, random = type(method)(replace(config, batch_size=batch), small), Randomness(0, context.device)
    images = len(few.labeled) + sum(len(domain) for domain in few.unlabeled)
    start = time.perf_counter()
    forward_all(probe.network(), few.labeled.images, small.spec, small.device, small.precision)
    forward = (time.perf_counter() - start) / len(few.labeled)
    found: dict[str, Seconds] = {}
    for stage in each_kind(probe):
        random.begin_epoch(stage.name, 0)
        start = time.perf_counter()
        probe.begin_epoch(stage, 0, random)
        passed = time.perf_counter() - start
        rows = {pool: random.rows(pool, population, 1, batch)[0] for pool, population in stage.pools.items()}
        for _ in range(2):  # the first one warms up
            start = time.perf_counter()
            probe.step(stage, rows, random.draws(probe.draws(stage)), probe.losses)
            step = time.perf_counter() - start
        found[kind_of(stage)] = Seconds(step / batch, passed / images, forward)
    return found


def few_images(training: TrainingData, count: int) -> TrainingData:
    """At least so many images of each domain, if it has them, and of the labeled one some of every class."""
    labels = training.labeled.labels
    each = -(-count // len(training.classes))
    rows = torch.cat([(labels == k).nonzero().flatten()[:each] for k in range(len(training.classes))])
    labeled = replace(training.labeled, images=training.labeled.images[rows], labels=labels[rows])
    unlabeled = tuple(
        replace(
            domain,
            images=domain.images[:count],
            ids=domain.ids[:count],
            known=None if domain.known is None else domain.known[:count],
        )
        for domain in training.unlabeled
    )
    return TrainingData(training.classes, labeled, unlabeled)


def each_kind(method: Method) -> list[Stage]:
    """The first stage of every kind."""
    first: dict[str, Stage] = {}
    for stage in method.stage_list():
        first.setdefault(kind_of(stage), stage)
    return list(first.values())


def networks(method: Method) -> list[Net]:
    return [net for module in method.modules().values() for net in module.modules() if isinstance(net, Net)]
