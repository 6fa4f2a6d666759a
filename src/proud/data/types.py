"""The types that carry images, and the separation of what methods may see from what only evaluation may use.

A method gets a `TrainingData` and nothing else. In it, an unlabeled domain has neither labels nor file paths: a
folder's name can be that of a class.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from proud.stored import TaskRecord

UNKNOWN = -1
"""The label of an image whose class is unknown."""


@dataclass(frozen=True, eq=False)
class LabeledDomain:
    """Images [N,3,S,S] uint8 with their class numbers [N] int64.

    `groups`: the patient, slide or the like of each image, empty where none is stated.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    groups: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_images(self.name, self.images)
        _check_labels(self.name, self.labels, len(self.images))
        if self.groups is not None and len(self.groups) != len(self.images):
            raise ValueError(f"{self.name}: {len(self.images)} images but {len(self.groups)} groups")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class UnlabeledDomain:
    """Images [N,3,S,S] uint8 and the hash of each one's content; no label, no path.

    `known` holds labels that the user added by hand ([N] int64, -1 elsewhere), never those of a data set.
    """

    name: str
    images: Tensor
    ids: tuple[str, ...]
    known: Tensor | None = None

    def __post_init__(self) -> None:
        _check_images(self.name, self.images)
        if len(self.ids) != len(self.images):
            raise ValueError(f"{self.name}: {len(self.images)} images but {len(self.ids)} ids")
        if self.known is not None:
            _check_labels(self.name, self.known, len(self.images))

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class Audit:
    """The true labels of an unlabeled domain (-1: unknown), row by row. For evaluation only."""

    name: str
    labels: Tensor
    paths: tuple[str, ...]

    @property
    def known(self) -> int:
        """The number of images whose true label is known."""
        return int((self.labels >= 0).sum())


@dataclass(frozen=True, eq=False)
class TrainingData:
    """All that a method gets."""

    classes: tuple[str, ...]
    labeled: LabeledDomain
    unlabeled: tuple[UnlabeledDomain, ...]


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """For measuring a model; never for training."""

    validation: LabeledDomain | None = None
    test: LabeledDomain | None = None
    audits: dict[str, Audit] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Task:
    """One labeled domain, some unlabeled ones, perhaps an unseen one; `report` describes them as JSON.

    `size` is the side of the square that the network sees. The images are stored a little larger (`stored_side`).
    """

    training: TrainingData
    evaluation: EvaluationData
    size: int
    report: TaskRecord


def _check_images(name: str, images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise ValueError(f"{name}: images must be uint8 [N,3,S,S], not {images.dtype} {list(images.shape)}")


def _check_labels(name: str, labels: Tensor, count: int) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        raise ValueError(f"{name}: labels must be int64 [{count}], not {labels.dtype} {list(labels.shape)}")
