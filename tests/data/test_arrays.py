"""Images and labels as arrays, lists and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trees import LABELS, batch, pixels

from proud.data.decode import PixelFormat, decode
from proud.errors import UserError
from toy import task_from


def test_pairs_of_arrays() -> None:
    task = task_from((batch(0), LABELS), [batch(100), batch(200)], (batch(300), np.array(LABELS)), size=16, seed=1)
    assert task.training.classes == ("0", "1") and len(task.training.labeled) == 18
    assert [domain.name for domain in task.training.unlabeled] == ["unlabeled 1", "unlabeled 2"]
    assert task.training.unlabeled[0].images.shape == (20, 3, 18, 18)
    assert task.evaluation.audits["unlabeled 1"].known == 0
    assert task.evaluation.test is not None and len(task.evaluation.test) == 20
    stored = [decode(image, PixelFormat(18)).numpy().tobytes() for image in batch(0)]
    expected = dict(zip(stored, LABELS, strict=True))
    for image, label in zip(task.training.labeled.images, task.training.labeled.labels.tolist(), strict=True):
        assert expected[image.numpy().tobytes()] == label


@pytest.mark.parametrize("form", ["NCHW", "NHWC", "tensor", "list"])
def test_layouts_agree(form: str) -> None:
    def shape(images: np.ndarray) -> Any:
        if form == "NCHW":
            return images.transpose(0, 3, 1, 2)
        if form == "list":
            return list(images)
        return torch.from_numpy(images).permute(0, 3, 1, 2) if form == "tensor" else images

    plain = task_from((batch(0), LABELS), [batch(100)], size=16).training
    other = task_from((shape(batch(0)), torch.tensor(LABELS)), [shape(batch(100))], size=16).training
    assert torch.equal(plain.labeled.images, other.labeled.images)
    assert torch.equal(plain.labeled.labels, other.labeled.labels)
    assert torch.equal(plain.unlabeled[0].images, other.unlabeled[0].images)
    assert plain.unlabeled[0].ids == other.unlabeled[0].ids


def test_grey_images_and_string_labels() -> None:
    grey = batch(0)[..., :1]
    names = ["dog" if label else "cat" for label in LABELS]
    task = task_from((grey, names), [grey.transpose(0, 3, 1, 2)], size=16)
    assert task.training.classes == ("cat", "dog")
    assert torch.equal(task.training.labeled.images[:, 0], task.training.labeled.images[:, 2])
    flat = task_from((grey[..., 0], LABELS), [grey[..., 0]], size=16)
    assert torch.equal(flat.training.labeled.images, task.training.labeled.images)
    assert task_from((grey, np.array(names)), [grey], size=16).training.classes == ("cat", "dog")
    assert task_from((grey, np.array(names, dtype=object)), [grey], size=16).training.classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "message"),
    [
        ((batch(0) / 255, LABELS), [batch(1)], "'labeled' are float64; they must be uint8"),
        ((batch(0)[..., 0, 0], LABELS), [batch(1)], r"shape \[20, 12\]"),
        ((batch(0), [0.5] * 20), [batch(1)], "one list of integers or strings"),
        ((batch(0), [0] * 20), [batch(1)], "only one class"),
        ((batch(0)[:0], []), [batch(1)], "no images"),
        ((batch(0), LABELS), [batch(1)[:0]], "no images"),
        ((batch(0), LABELS), [[]], "no images in 'unlabeled 1'"),
        ((batch(0), LABELS), [[pixels(1), pixels(2) / 255]], "image 2 of 'unlabeled 1' is float64"),
    ],
)
def test_wrong_arrays_are_refused(labeled: Any, unlabeled: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_from(labeled, unlabeled, size=16)
