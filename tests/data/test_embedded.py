"""The built-in data set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from trees import task_of

from proud.data import embedded
from proud.data.embedded import CLASSES, DOMAINS, PRINT_FACES, STREET_FACES, load_embedded


def test_shapes_and_balance() -> None:
    data = load_embedded()
    assert tuple(data) == DOMAINS == ("pen", "texture", "print", "street")
    for images, labels in data.values():
        assert images.shape == (400, 32, 32, 3) and images.dtype == np.uint8
        assert np.bincount(labels, minlength=CLASSES).tolist() == [40] * CLASSES


def test_made_twice_is_made_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PER_CLASS", 4)
    first, second = (load_embedded.__wrapped__() for _ in range(2))
    for name in DOMAINS:
        assert first[name][0].shape == (40, 32, 32, 3) and first[name][0] is not second[name][0]
        assert np.array_equal(first[name][0], second[name][0])


def test_no_image_twice_and_no_font_in_two_domains() -> None:
    every = [image.tobytes() for images, _ in load_embedded().values() for image in images]
    assert len(set(every)) == len(every)
    assert not set(PRINT_FACES) & set(STREET_FACES)


def test_pen_and_texture_share_no_handwriting() -> None:
    pen, texture = embedded._handwritten()
    assert not {digit.tobytes() for digit in pen} & {digit.tobytes() for digit in texture}


def test_domains_look_different_and_digits_stand_out() -> None:
    looks = {}
    for name, (images, _) in load_embedded().items():
        values = images.astype(float) / 255
        looks[name] = np.array([values.mean(), values.mean(-1).std((1, 2)).mean(), values.std(-1).mean()])
        assert values.mean(-1).std((1, 2)).min() > 0.02, name
    for one, other in itertools.combinations(DOMAINS, 2):
        assert np.abs(looks[one] - looks[other]).max() > 0.02, (one, other)
    brightness = {name: look[0] for name, look in looks.items()}
    assert min(brightness["pen"], brightness["print"]) > 0.7 > 0.6 > brightness["street"]


def test_task() -> None:
    task = task_of(embedded.embedded_catalog(), labeled="pen", test="street", size=32)
    assert len(task.training.labeled) == 360 and task.training.labeled.images.shape[-1] == 36
    assert [domain.name for domain in task.training.unlabeled] == ["texture", "print"]
    assert task.training.classes == tuple("0123456789")
