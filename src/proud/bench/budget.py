"""The same budget for every method: images passed forward and backward, summed over a method's networks.

They are counted, not declared: one step of every stage runs on a tiny synthetic task, and a hook on each backbone
counts the images that pass with gradients enabled.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from proud.data.synthetic import synthetic_task
from proud.errors import UserError
from proud.methods import method_class, method_config
from proud.methods.base import Method, MethodConfig, Sizes, Stage
from proud.methods.context import make_context
from proud.nets.models import Net, model_spec
from proud.randomness import Randomness

TINY: dict[str, Any] = {"labeled": 16, "unlabeled": (16, 16), "test": 4, "classes": 2, "size": 16}


def build(name: str, settings: dict[str, Any]) -> Method:
    """The method on a few synthetic images, with the small network."""
    task = synthetic_task(TINY)
    spec = model_spec("digits", TINY["classes"], TINY["size"])
    context = make_context(task.training, spec, torch.device("cpu"), weights="none", seed=0, precision="fp32")
    return method_class(name)(method_config(name, **settings), context)


def kind_of(stage: Stage) -> str:
    """Stages that differ in a number alone (`adapt-1-2`, `adapt-2-1`) cost the same per step."""
    return re.sub(r"(-\d+)+$", "", stage.name)


def images_per_batch_image(name: str, settings: dict[str, Any]) -> dict[str, float]:
    """For each kind of stage: images forward and backward in one step, over the batch size."""
    batch = 4
    method = build(name, settings | {"batch_size": batch})
    counted: list[int] = []

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()):
            counted.append(len(inputs[0]))

    nets = {id(net): net for module in method.modules().values() for net in module.modules() if isinstance(net, Net)}
    for backbone in (net.backbone for net in nets.values()):
        backbone.register_forward_pre_hook(count)
    found: dict[str, float] = {}
    random = Randomness(0, torch.device("cpu"))
    for stage in method.stage_list():
        random.begin_epoch(stage.name, 0)
        method.begin_epoch(stage, 0, random)
        rows = {pool: random.rows(pool, population, 1, batch)[0] for pool, population in stage.pools.items()}
        counted.clear()
        method.step(stage, rows, random.draws(method.draws(stage)), method.losses)
        found.setdefault(kind_of(stage), sum(counted) / batch)
    if not all(found.values()):
        none = ", ".join(name for name, count in found.items() if not count)
        raise UserError(
            f"--equal-budget cannot count the images of {name!r} (stage {none}): does it have a Net as an attribute?"
        )
    return found


def total_images(kind: type[Method], config: MethodConfig, sizes: Sizes, per_image: dict[str, float]) -> float:
    """The images that all stages pass through the method's networks."""
    stages = kind.stages(config, sizes)
    return sum(stage.epochs * stage.steps * config.batch_size * per_image[kind_of(stage)] for stage in stages)


def epochs_within(sizes: Sizes, name: str, settings: dict[str, Any], budget: float) -> int:
    """The most epochs whose images stay within the budget."""
    per_image, kind, config = (
        images_per_batch_image(name, settings),
        method_class(name),
        method_config(name, **settings),
    )

    def cost(epochs: int) -> float:
        return total_images(kind, replace(config, epochs=epochs), sizes, per_image)

    if cost(1) > budget:
        raise UserError(f"--equal-budget is too small for {name!r}: its pretraining and one epoch alone cost more.")
    low, high = 1, 2
    while cost(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low


def equal_epochs(sizes: Sizes, methods: list[str], settings: dict[str, Any], proud_epochs: int) -> dict[str, int]:
    """Epochs per method that cost at most what ProUD's pretraining and `proud_epochs` epochs cost."""
    config = replace(method_config("proud", **settings), epochs=proud_epochs)
    budget = total_images(method_class("proud"), config, sizes, images_per_batch_image("proud", settings))
    return {name: epochs_within(sizes, name, settings, budget) for name in methods}
