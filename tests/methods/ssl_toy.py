"""A toy task for semi-supervised methods: a bright square in one of three places, each domain in its own colours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proud.data.types import LabeledDomain, TrainingData, UnlabeledDomain
from proud.methods import method_class, method_config
from proud.methods.base import Method, Stage
from proud.methods.context import Context, make_context
from proud.nets.models import model_spec
from proud.randomness import Draws, Randomness

CLASSES, SIZE = 3, 16
CORNERS = ((3, 3), (3, 11), (11, 7))


def domain(seed: int, n: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    back, front = torch.rand(2, 3, generator=g) * torch.tensor([[0.35], [0.3]]) + torch.tensor([[0.0], [0.65]])
    images = back.view(1, 3, 1, 1).expand(n, 3, SIZE + 2, SIZE + 2).clone()
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = CORNERS[label]
        image[:, row - 2 : row + 4, column - 2 : column + 4] = front.view(3, 1, 1)
    images += 0.1 * torch.randn(images.shape, generator=g)
    return (images.clamp(0, 1) * 255).byte(), labels


def toy_context(*, labeled: int = 24, unlabeled: tuple[int, ...] = (21, 15), model: str = "digits") -> Context:
    torch.set_num_threads(1)
    images, labels = domain(0, labeled)
    names = tuple("abc")
    others = tuple(
        UnlabeledDomain(f"u{t}", domain(t + 1, n)[0], tuple(f"{t}-{i}" for i in range(n)))
        for t, n in enumerate(unlabeled)
    )
    data = TrainingData(names, LabeledDomain("l", images, labels, names), others)
    spec = model_spec(model, CLASSES, SIZE)
    return make_context(data, spec, torch.device("cpu"), weights="none", seed=1, precision="fp32")


def make(name: str, context: Context | None = None, **settings: Any) -> Method:
    settings = {"batch_size": 6, "epochs": 2, "pretrain_epochs": 1, "lr": 0.01, "flip": False} | settings
    return method_class(name)(method_config(name, **settings), context or toy_context())


def epoch(method: Method, stage: Stage, number: int, steps: int | None = None) -> list[dict[str, Tensor]]:
    """What the loop does in an epoch, or in its first steps; returns every step's losses."""
    random = Randomness(method.context.seed, method.context.device)
    random.begin_epoch(stage.name, number)
    method.begin_epoch(stage, number, random)
    rows = method.rows(stage, random)
    wanted = method.draws(stage)
    batches = [{name: chosen[step] for name, chosen in rows.items()} for step in range(stage.steps)][:steps]
    return [method.step(stage, batch, random.draws(wanted), method.losses) for batch in batches]


def train(method: Method) -> list[dict[str, Tensor]]:
    return [
        losses
        for stage in method.stage_list()
        for number in range(stage.epochs)
        for losses in epoch(method, stage, number)
    ]


def main_batch(method: Method) -> tuple[Stage, dict[str, Tensor], Draws]:
    """A batch of the main stage with its draws, at the start of the stage."""
    stage = method.stage_list()[1]
    random = Randomness(method.context.seed, method.context.device)
    random.begin_epoch(stage.name, 0)
    method.begin_epoch(stage, 0, random)
    rows = {name: random.rows(name, n, 1, method.config.batch_size)[0] for name, n in stage.pools.items()}
    return stage, rows, random.draws(method.draws(stage))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
