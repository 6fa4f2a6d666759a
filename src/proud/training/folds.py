"""Cross-validation: every labeled image is judged by a network that was trained in the same way without it.

A few validation images can promise little. With folds all labeled images calibrate the saved model, though only
approximately: they are judged by networks that had a part of the labels less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from proud.data.types import EvaluationData, LabeledDomain, Task
from proud.files import MOST_TENSOR_BYTES, parse_tensors
from proud.manifest import Files

if TYPE_CHECKING:
    from proud.config import Options
    from proud.training.loop import Progress

FOLDS = "folds"
"""The folder of unfinished folds in a run's folder, and the name of their outputs."""

FOLD_STREAM = 0x666F6C64
"""Separates the draw of the folds from every other use of the same seed."""

TrainFold = Callable[[Task, "Options", "Callable[[Progress], None]"], Any]


def out_of_fold(
    folder: Path, task: Task, seed: int, options: Options, watch: Callable[[Progress], None], train: TrainFold
) -> tuple[Tensor, Tensor]:
    """Logits and labels of all labeled images that a fold holds out. [N,K], [N]. Finished folds are not repeated."""
    found = []
    for number, fold in enumerate(fold_tasks(task, options.folds, seed), 1):
        place = folder / FOLDS / str(number)
        own = replace(options, out=str(place), resume=True, overwrite=False, folds=0, tensorboard=False)

        def notify(now: Progress, number: int = number) -> None:
            stage = f"fold {number} of {options.folds}, {now.stage}"
            watch(replace(now, stage=stage, record=None, left=None, estimate=None))  # those of the whole run were shown

        train(fold, own, notify)
        outputs = parse_tensors(Files(place).read("outputs.safetensors", MOST_TENSOR_BYTES))
        found.append((outputs["val/logits"], outputs["val/labels"]))
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(labels)


def fold_tasks(task: Task, folds: int, seed: int) -> Iterator[Task]:
    """The task without each fold of its labeled images, which becomes the validation set; nothing is tested."""
    whole = labeled_images(task)
    place = fold_of(whole, folds, seed)
    for fold in range(folds):
        if not bool((place == fold).any()):
            continue
        training = replace(task.training, labeled=part_of(whole, place != fold))
        evaluation = EvaluationData(validation=part_of(whole, place == fold))
        yield replace(task, training=training, evaluation=evaluation)


def labeled_images(task: Task) -> LabeledDomain:
    """All labeled images: those that are trained on, and those for validation."""
    mine, held = task.training.labeled, task.evaluation.validation
    if held is None:
        return mine
    return replace(mine, images=torch.cat([mine.images, held.images]), labels=torch.cat([mine.labels, held.labels]))


def part_of(domain: LabeledDomain, rows: Tensor) -> LabeledDomain:
    return replace(domain, images=domain.images[rows], labels=domain.labels[rows])


def fold_of(domain: LabeledDomain, folds: int, seed: int) -> Tensor:
    """The fold of each image, stratified by class; -1 for images that are never held out. [N].

    Equal images share a fold, and the only image of a class is always trained on.
    """
    random = np.random.default_rng([FOLD_STREAM, seed])
    place = torch.full((len(domain),), -1)
    rows_of: dict[bytes, list[int]] = {}
    for row, image in enumerate(domain.images):
        rows_of.setdefault(image.numpy().tobytes(), []).append(row)
    by_class: dict[int, list[list[int]]] = {}
    for rows in rows_of.values():
        if len(set(domain.labels[rows].tolist())) == 1:
            by_class.setdefault(int(domain.labels[rows[0]]), []).append(rows)
    first = 0
    for label in sorted(by_class):
        groups = by_class[label]
        if len(groups) > 1:
            for turn, chosen in enumerate(random.permutation(len(groups)).tolist()):
                place[groups[chosen]] = (first + turn) % folds
            first += len(groups)  # so that the folds are of equal size
    return place
