"""A task of made-up images in a benchmark's numbers and sizes, and a method on it: what time and cost depend on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proud.data.types import EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
from proud.data.decode import stored_side
from proud.methods import method_class, method_config
from proud.methods.base import Method, Stage
from proud.methods.context import make_context
from proud.nets.models import model_spec
from proud.methods.presets import preset
from proud.randomness import Randomness

SMALL: dict[str, Any] = {"model": "digits", "size": 32}
LARGE: dict[str, Any] = {"model": "resnet18.tv_in1k", "size": 224}
# labeled, unlabeled and test images of one combination, and the classes
SHAPES: dict[str, dict[str, Any]] = {
    "digits-dg": {
        "labeled": 4800,
        "unlabeled": (4800, 4800),
        "test": 6000,
        "classes": 10,
        "model": "digits",
        "size": 32,
    },
    "pacs": {
        "labeled": 1499,
        "unlabeled": (1840, 2107),
        "test": 3929,
        "classes": 7,
        "model": "resnet18.tv_in1k",
        "size": 224,
    },
    "embedded": {"labeled": 360, "unlabeled": (400, 400), "test": 400, "classes": 10, "model": "digits", "size": 32},
}


def made_up_task(shape: dict[str, Any]) -> Task:
    """Random pixels in the benchmark's numbers; every class is there."""
    side, classes = stored_side(shape["size"]), tuple(str(k) for k in range(shape["classes"]))
    generator = torch.Generator().manual_seed(0)

    def images(count: int) -> Tensor:
        return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)

    def labeled(name: str, count: int) -> LabeledDomain:
        return LabeledDomain(name, images(count), torch.arange(count) % len(classes), classes)

    unlabeled = tuple(
        UnlabeledDomain(f"site-{t}", images(count), tuple(map(str, range(count))))
        for t, count in enumerate(shape["unlabeled"])
    )
    training = TrainingData(classes, labeled("labeled", shape["labeled"]), unlabeled)
    return Task(training, EvaluationData(test=labeled("test", shape["test"])), shape["size"], {"data": "made up"})


def build(
    shape: dict[str, Any], data: str, name: str, task: Task, device: torch.device, precision: Any, **settings: Any
) -> Method:
    spec = model_spec(shape["model"], shape["classes"], shape["size"])
    context = make_context(task.training, spec, device, weights="none", seed=2022, precision=precision)
    return method_class(name)(method_config(name, **preset(data, method=name) | settings), context)


def begin(method: Method, number: int, epoch: int, random: Randomness) -> tuple[Stage, dict[str, Tensor]]:
    """A stage with an epoch begun, and that epoch's rows."""
    stage = method.stages()[number]
    random.begin_epoch(stage.name, epoch)
    method.begin_epoch(stage, epoch, random)
    rows = {
        name: random.rows(name, population, stage.steps, method.config.batch_size).to(method.context.device)
        for name, population in stage.pools.items()
    }
    return stage, rows
