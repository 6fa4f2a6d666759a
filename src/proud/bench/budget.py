"""The same budget for every method: images passed forward and backward, summed over a method's networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proud.errors import UserError
from proud.methods import method_class, method_config
from proud.methods.base import Method, MethodConfig, Sizes
from proud.methods.workload import count_work, kind_of


def images_per_batch_image(name: str, settings: dict[str, Any]) -> dict[str, float]:
    """For each kind of stage: images forward and backward in one step, over the batch size."""
    work = count_work(method_class(name), method_config(name, **settings))
    found = {stage: each.trained for stage, each in work.items()}
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
