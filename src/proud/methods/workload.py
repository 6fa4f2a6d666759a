"""How many images a method passes through its networks: counted, not declared.

One step of every stage runs on a tiny synthetic task, and a hook on each backbone counts the images.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from proud.data.synthetic import synthetic_task
from proud.methods.base import Method, MethodConfig, Stage
from proud.methods.context import make_context
from proud.nets.models import Net, model_spec
from proud.randomness import Randomness

TINY: dict[str, Any] = {"labeled": 16, "unlabeled": (16, 16), "test": 4, "classes": 2, "size": 16}
IMAGES = TINY["labeled"] + sum(TINY["unlabeled"])
BATCH = 4


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
    for stage in method.stage_list():
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        passed = sum(seen)
        trained.clear()
        seen.clear()
        rows = {pool: random.rows(pool, population, 1, BATCH)[0] for pool, population in stage.pools.items()}
        method.step(stage, rows, random.draws(method.draws(stage)), method.losses)
        found.setdefault(kind_of(stage), Work(sum(trained) / BATCH, sum(seen) / BATCH, passed / IMAGES))
        seen.clear()
    return found


def networks(method: Method) -> list[Net]:
    return [net for module in method.modules().values() for net in module.modules() if isinstance(net, Net)]
