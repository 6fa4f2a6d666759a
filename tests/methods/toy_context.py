"""A tiny task on the CPU for tests of single methods: coloured bars, one labeled domain and some unlabeled ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proud.data.types import LabeledDomain, TrainingData, UnlabeledDomain
from proud.methods import METHODS, method_class
from proud.methods.base import Method
from proud.methods.context import Context, make_context
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.loop import plain_epoch

torch.set_num_threads(1)
SIDE, CLASSES = 18, 3


def bars(count: int, seed: int, tint: float) -> tuple[Tensor, Tensor]:
    """Images whose class is where a bright bar lies: at the left, in the middle, or at the top."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    images = torch.rand(count, 3, SIDE, SIDE, generator=generator) * 60 + tint
    for image, label in zip(images, labels.tolist(), strict=True):
        if label == 2:
            image[:, 2:6] += 120
        else:
            image[:, :, 3 + 8 * label : 7 + 8 * label] += 120
    return images.clamp(0, 255).to(torch.uint8), labels


def toy_context(domains: int = 2, count: int = 48, seed: int = 1) -> Context:
    images, labels = bars(count, 0, 10.0)
    names = tuple(f"class{k}" for k in range(CLASSES))
    unlabeled = tuple(
        UnlabeledDomain(f"u{t}", bars(count - t, t + 1, 30.0 + 8 * t)[0], tuple(f"{t}-{i}" for i in range(count - t)))
        for t in range(domains)
    )
    data = TrainingData(names, LabeledDomain("l", images, labels, names), unlabeled)
    spec = model_spec("digits", CLASSES, 16)
    return make_context(data, spec, torch.device("cpu"), weights="none", seed=seed, precision="fp32")


def toy_method(name: str, context: Context | None = None, **settings: Any) -> Method:
    method = method_class(name)
    shared = {"epochs": 1, "pretrain_epochs": 1, "batch_size": 12, "lr": 0.02, "weight_decay": 0.0, "flip": False}
    return method(method.Config(**{**shared, **METHODS[name][1], **settings}), context or toy_context())


def train(method: Method, until: tuple[str, int] | None = None, after: tuple[str, int] | None = None) -> list[dict]:
    """All stages as the loop runs them; `until` and `after` name the last epoch to run and to skip."""
    random = Randomness(method.context.seed, method.context.device)
    skipping, history = after is not None, []
    for stage in method.stage_list():
        for epoch in range(stage.epochs):
            if not skipping:
                random.begin_epoch(stage.name, epoch)
                method.begin_epoch(stage, epoch, random)
                rows = method.rows(stage, random)
                losses = plain_epoch(method, stage, rows, random, lambda step: None)
                history.append({"stage": stage.name, **{name: values.mean() for name, values in losses.items()}})
            skipping = skipping and after != (stage.name, epoch)
            if until == (stage.name, epoch):
                return history
    return history


def same_weights(a: Method, b: Method) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
