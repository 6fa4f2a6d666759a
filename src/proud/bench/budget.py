"""The same budget for every method: images passed forward and backward, summed over a method's networks.

Which images those are is counted, not declared: one step of every stage runs on a tiny made-up task, and a hook on each
backbone counts what passes with gradients on.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from torch.nn import Module

from proud.errors import UserError
from proud.data.synthetic import made_up_task
from proud.methods import method_class, method_config
from proud.methods.base import Method, Stage
from proud.methods.context import make_context
from proud.nets.models import Net, model_spec
from proud.randomness import Randomness

TINY = {"labeled": 16, "unlabeled": (16, 16), "test": 4, "classes": 2, "size": 16, "model": "digits"}


def build(shape: dict[str, Any], name: str, settings: dict[str, Any]) -> Method:
    """The method on made-up images of the shape's numbers, with the small network: counting needs no other."""
    task = made_up_task(shape | {"size": 16, "test": 1})
    spec = model_spec("digits", shape["classes"], 16)
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=0, precision="fp32")
    return method_class(name)(method_config(name, **settings), context)


def kind(stage: Stage) -> str:
    """Stages that differ in a number alone (`adapt-1-2`, `adapt-2-1`) cost the same per step."""
    return re.sub(r"(-\d+)+$", "", stage.name)


def images_per_batch_image(name: str, settings: dict[str, Any]) -> dict[str, float]:
    """For each kind of stage: images forward and backward in one step, over the batch size."""
    batch = 4
    method = build(TINY, name, settings | {"batch_size": batch})
    counted: list[int] = []

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()):
            counted.append(len(inputs[0]))

    modules = [each for each in (*vars(method).values(), *method.modules().values()) if isinstance(each, Module)]
    nets = {id(net): net for module in modules for net in module.modules() if isinstance(net, Net)}
    for backbone in (net.backbone for net in nets.values()):
        backbone.register_forward_pre_hook(count)
    found: dict[str, float] = {}
    random = Randomness(0, torch.device("cpu"))
    for stage in method.stages():
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        rows = {pool: random.rows(pool, population, 1, batch)[0] for pool, population in stage.pools.items()}
        counted.clear()
        method.step(stage, rows, random.draws(method.draws(stage)))
        found.setdefault(kind(stage), sum(counted) / batch)
    if not all(found.values()):
        none = ", ".join(name for name, count in found.items() if not count)
        raise UserError(f"--equal-budget cannot count the images of {name!r} (stage {none}): is no Net an attribute?")
    return found


def total_images(method: Method, per_image: dict[str, float], epochs: int) -> float:
    """What the method would pass through its networks with so many epochs."""
    method.config = replace(method.config, epochs=epochs)
    batch = method.config.batch_size
    return sum(stage.epochs * stage.steps * batch * per_image[kind(stage)] for stage in method.stages())


def epochs_within(shape: dict[str, Any], name: str, settings: dict[str, Any], budget: float) -> int:
    """The most epochs whose images stay within the budget."""
    per_image = images_per_batch_image(name, settings)
    method = build(shape, name, settings)
    if total_images(method, per_image, 1) > budget:
        raise UserError(f"--equal-budget is too small for {name!r}: its pretraining and one epoch alone cost more.")
    low, high = 1, 2
    while total_images(method, per_image, high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total_images(method, per_image, middle) <= budget else (low, middle)
    return low


def equal_epochs(
    shape: dict[str, Any], methods: list[str], settings: dict[str, Any], proud_epochs: int
) -> dict[str, int]:
    """Epochs per method that cost at most what ProUD's pretraining and `proud_epochs` epochs cost."""
    per_image = images_per_batch_image("proud", settings)
    budget = total_images(build(shape, "proud", settings), per_image, proud_epochs)
    return {name: epochs_within(shape, name, settings, budget) for name in methods}
