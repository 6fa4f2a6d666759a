"""A task of random pixels: time and cost of training depend on numbers and sizes of images alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proud.data.decode import stored_side
from proud.data.types import EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
from proud.stored import TaskRecord


def synthetic_task(shape: dict[str, Any]) -> Task:
    """`shape`: numbers of labeled, unlabeled (per domain) and test images, classes, and the network's input size."""
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
    report: TaskRecord = {
        "data": "synthetic",
        "benchmark": False,
        "size": shape["size"],
        "square": "middle",
        "stored_side": side,
        "classes": list(classes),
        "domains": {},
        "skipped": [],
    }
    return Task(training, EvaluationData(test=labeled("test", shape["test"])), shape["size"], report)
