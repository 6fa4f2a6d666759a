from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trees import pixels

from proud.data.arrays import assemble_arrays
from proud.data.types import LabeledDomain, Task, UnlabeledDomain
from proud.data.decode import decode
from proud.errors import UserError


def batch(start: int, count: int = 20, side: int = 12) -> np.ndarray:
    return np.stack([pixels(start + number, side, side) for number in range(count)])


LABELS = [number % 2 for number in range(20)]


def task_of(labeled: Any, unlabeled: Any, test: Any = None, **options: Any) -> Task:
    settings: dict[str, Any] = {"size": 16, "seed": 1} | options
    return assemble_arrays(labeled, unlabeled, test, **settings)


def test_pairs_of_arrays() -> None:
    task = task_of((batch(0), LABELS), [batch(100), batch(200)], (batch(300), np.array(LABELS)))
    assert task.training.classes == ("0", "1") and len(task.training.labeled) == 18
    assert [domain.name for domain in task.training.unlabeled] == ["unlabeled 1", "unlabeled 2"]
    assert task.training.unlabeled[0].images.shape == (20, 3, 18, 18)
    assert task.evaluation.audits["unlabeled 1"].known == 0
    assert task.evaluation.test is not None and len(task.evaluation.test) == 20
    expected = {decode(image, 18).numpy().tobytes(): label for image, label in zip(batch(0), LABELS, strict=True)}
    for image, label in zip(task.training.labeled.images, task.training.labeled.labels.tolist(), strict=True):
        assert expected[image.numpy().tobytes()] == label


@pytest.mark.parametrize("form", ["NCHW", "NHWC", "tensor"])
def test_layouts_agree(form: str) -> None:
    def shape(images: np.ndarray) -> Any:
        if form == "NCHW":
            return images.transpose(0, 3, 1, 2)
        return torch.from_numpy(images).permute(0, 3, 1, 2) if form == "tensor" else images

    plain = task_of((batch(0), LABELS), [batch(100)]).training
    other = task_of((shape(batch(0)), torch.tensor(LABELS)), [shape(batch(100))]).training
    assert torch.equal(plain.labeled.images, other.labeled.images)
    assert torch.equal(plain.labeled.labels, other.labeled.labels)
    assert torch.equal(plain.unlabeled[0].images, other.unlabeled[0].images)
    assert plain.unlabeled[0].ids == other.unlabeled[0].ids


def test_grey_images_and_string_labels() -> None:
    grey = batch(0)[..., :1]
    names = ["dog" if label else "cat" for label in LABELS]
    task = task_of((grey, names), [grey.transpose(0, 3, 1, 2)])
    assert task.training.classes == ("cat", "dog")
    assert torch.equal(task.training.labeled.images[:, 0], task.training.labeled.images[:, 2])
    flat = task_of((grey[..., 0], LABELS), [grey[..., 0]])
    assert torch.equal(flat.training.labeled.images, task.training.labeled.images)
    assert task_of((grey, np.array(names)), [grey]).training.classes == ("cat", "dog")
    assert task_of((grey, np.array(names, dtype=object)), [grey]).training.classes == ("cat", "dog")


def test_domain_types_pass_through() -> None:
    stored = torch.from_numpy(batch(100, side=18)).permute(0, 3, 1, 2).contiguous()
    known = torch.full((20,), -1)
    known[3] = 1
    ready = UnlabeledDomain("north", stored, tuple(f"{number:02d}" for number in range(20)), known)
    small = UnlabeledDomain("small", stored[:, :, :9, :9], ready.ids)
    hidden = LabeledDomain("west", stored.flip(0), torch.tensor(LABELS), ("0", "1"))
    labeled = LabeledDomain("centre", torch.from_numpy(batch(0)).permute(0, 3, 1, 2), torch.tensor(LABELS), ("0", "1"))
    task = task_of(labeled, [small, hidden, ready])
    assert [domain.name for domain in task.training.unlabeled] == ["small", "west", "north"]
    assert task.training.labeled.name == "centre"
    assert task.training.unlabeled[2] is ready
    assert task.training.unlabeled[0].images.shape == (20, 3, 18, 18) and task.training.unlabeled[0].ids == ready.ids
    assert task.evaluation.audits["west"].known == 20 and task.evaluation.audits["north"].known == 0
    assert set(task.report["domains"]) == {"centre", "west", "small", "north"}
    assert [domain.name for domain in task_of(labeled, [ready]).training.unlabeled] == ["north"]


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "message"),
    [
        ((batch(0) / 255, LABELS), [batch(1)], "'labeled' are float64; they must be uint8"),
        ((batch(0)[..., 0, 0], LABELS), [batch(1)], r"shape \[20, 12\]"),
        ((batch(0), LABELS[:-1]), [batch(1)], "20 images but 19 labels"),
        ((batch(0), [0.5] * 20), [batch(1)], "whole numbers or strings"),
        ((batch(0), [0] * 20), [batch(1)], "only one class"),
        ((batch(0)[:0], []), [batch(1)], "no images"),
        (batch(0), [batch(1)], r"pair \(images, labels\)"),
        ((batch(0), LABELS), [], "No unlabeled domain"),
        ((batch(0), LABELS), [batch(1)[:0]], "no images"),
        ((batch(0), LABELS), [UnlabeledDomain("e", torch.zeros((0, 3, 4, 4), dtype=torch.uint8), ())], "no images"),
        (
            (batch(0), LABELS),
            [UnlabeledDomain("labeled", torch.zeros((1, 3, 4, 4), dtype=torch.uint8), ("a",))],
            "same name",
        ),
    ],
)
def test_bad_arrays(labeled: Any, unlabeled: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_of(labeled, unlabeled)
