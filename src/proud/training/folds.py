"""Cross-validation: every labeled image is judged by a network that was trained in the same way without it.

A few validation images can promise little. With folds all labeled images calibrate the saved model, though only
approximately: they are judged by networks that had a part of the labels less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from proud.data.splits import joined
from proud.data.task import digest
from proud.data.types import EvaluationData, LabeledDomain, Task
from proud.errors import UserError
from proud.files import MOST_TENSOR_BYTES, parse_tensors
from proud.manifest import Files
from proud.model.format import other_images, read_run
from proud.stored import TaskRecord

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
        same = is_of(fold, place)
        own = replace(options, out=str(place), resume=same, overwrite=not same, folds=0, tensorboard=False)

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
        content = task.report.get("content", {}) | {whole.name: digest(map(str, (place == fold).nonzero().tolist()))}
        report: TaskRecord = {**task.report, "content": content}
        yield replace(task, training=training, evaluation=evaluation, report=report)


def is_of(fold: Task, folder: Path) -> bool:
    """Whether the run there holds out the same images; there may be one of another number of folds."""
    try:
        return not other_images(read_run(folder, compare=False)["task"], fold.report)
    except (OSError, UserError):
        return False


def check_can_fold(task: Task, folds: int, seed: int) -> None:
    """Before training, rather than after it."""
    whole = labeled_images(task)
    if bool((fold_of(whole, folds, seed) < 0).all()):
        raise UserError(
            f"--folds {folds} can hold out no image of {whole.name}: all images of a class are copies or of one group, "
            "and without them the class would be missing in training. Leave --folds out."
        )


def labeled_images(task: Task) -> LabeledDomain:
    """All labeled images: those that are trained on, and those for validation."""
    mine, held = task.training.labeled, task.evaluation.validation
    if held is None:
        return mine
    groups = None if mine.groups is None and held.groups is None else groups_of(mine) + groups_of(held)
    images, labels = torch.cat([mine.images, held.images]), torch.cat([mine.labels, held.labels])
    return replace(mine, images=images, labels=labels, groups=groups)


def groups_of(domain: LabeledDomain) -> tuple[str, ...]:
    return domain.groups or ("",) * len(domain)


def part_of(domain: LabeledDomain, rows: Tensor) -> LabeledDomain:
    groups = domain.groups and tuple(compress(domain.groups, rows.tolist()))
    return replace(domain, images=domain.images[rows], labels=domain.labels[rows], groups=groups)


def fold_of(domain: LabeledDomain, folds: int, seed: int) -> Tensor:
    """The fold of each image, stratified by class; -1 for images that are never held out. [N].

    Equal images and images of one group share a fold. What a class has no second of is always trained on.
    """
    random = np.random.default_rng([FOLD_STREAM, seed])
    pairs = zip(domain.images, groups_of(domain), strict=True)
    units = joined([keys_of(image, group) for image, group in pairs])
    classes = [tuple(sorted(set(domain.labels[rows].tolist()))) for rows in units]
    fold = [-1] * len(units)
    first = 0
    for kind in sorted(set(classes)):
        mine = [unit for unit, here in enumerate(classes) if here == kind]
        if len(kind) > 1 and domain.groups is None:
            continue  # copies under two classes are trained on
        for turn, chosen in enumerate(random.permutation(len(mine)).tolist()):
            fold[mine[chosen]] = (first + turn) % folds
        first += len(mine)  # so that the folds are of equal size
    for label in domain.labels.unique().tolist():
        mine = [unit for unit, here in enumerate(classes) if label in here]
        if len({fold[unit] for unit in mine}) == 1:  # held out, the class would be missing in training
            for unit in mine:
                fold[unit] = -1
    place = torch.full((len(domain),), -1)
    for rows, number in zip(units, fold, strict=True):
        place[rows] = number
    return place


def keys_of(image: Tensor, group: str) -> list[object]:
    return [image.numpy().tobytes(), *([group] if group else [])]
