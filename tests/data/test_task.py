"""From images that are found to a task."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from trees import site_task, three_sites

from proud.data.decode import PixelFormat, content_hash, decode
from proud.errors import UserError


def test_roles_shapes_and_report(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path))
    training, evaluation = task.training, task.evaluation
    assert training.classes == ("cat", "dog") and task.size == 16
    assert training.labeled.images.shape == (18, 3, 18, 18) and training.labeled.name == "central"
    assert [domain.name for domain in training.unlabeled] == ["north"]
    assert training.unlabeled[0].images.shape == (20, 3, 18, 18) and training.unlabeled[0].known is None
    assert evaluation.validation is not None and len(evaluation.validation) == 2
    assert evaluation.test is not None and Counter(evaluation.test.labels.tolist()) == {0: 10, 1: 10}
    report = json.loads(json.dumps(task.report))
    assert report["domains"]["central"] == {
        "role": "labeled",
        "images": 18,
        "validation": 2,
        "per_class": {"cat": 9, "dog": 9},
        "validation_per_class": {"cat": 1, "dog": 1},
    }
    assert report["domains"]["north"] == {"role": "unlabeled", "images": 20, "audited": 20}
    assert report["domains"]["south"]["role"] == "test" and report["skipped"] == []


def test_rows_are_ordered_by_content_and_aligned(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path))
    domain, audit = task.training.unlabeled[0], task.evaluation.audits["north"]
    assert list(domain.ids) == sorted(domain.ids)
    for row, (identity, path) in enumerate(zip(domain.ids, audit.paths, strict=True)):
        assert content_hash(tmp_path / path) == identity
        assert torch.equal(decode(tmp_path / path, PixelFormat(18)), domain.images[row])
        assert task.training.classes[audit.labels[row]] == Path(path).parent.name


def test_labels_follow_their_images(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path, 4))
    for domain in (task.training.labeled, task.evaluation.validation, task.evaluation.test):
        assert domain is not None
        paths = (tmp_path / domain.name).glob("*/*.png")
        truth = {decode(path, PixelFormat(18)).numpy().tobytes(): path.parent.name for path in paths}
        for image, label in zip(domain.images, domain.labels.tolist(), strict=True):
            assert truth[image.numpy().tobytes()] == domain.classes[label]


def test_every_bad_file_of_every_domain_is_in_one_error(tmp_path: Path) -> None:
    three_sites(tmp_path, 3)
    bad = ["central/cat/000.png", "north/dog/001.png", "south/cat/002.png"]
    for path in bad:
        (tmp_path / path).write_bytes(b"\x89PNG broken")
    with pytest.raises(UserError) as caught:
        site_task(tmp_path)
    assert all(path in str(caught.value) for path in bad) and "3 images cannot be used" in str(caught.value)
    task = site_task(tmp_path, skip_bad=True)
    assert sorted(file["path"] for file in task.report["skipped"]) == bad
    assert len(task.training.unlabeled[0]) == len(task.evaluation.audits["north"].paths) == 5


def test_skipping_must_leave_every_class_and_domain(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    for path in (tmp_path / "central" / "dog").glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable training images for dog"):
        site_task(tmp_path, skip_bad=True)
    for path in (tmp_path / "south").glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable images are left in the domain 'south'"):
        site_task(tmp_path, labeled="north", test="none", unlabeled=("south",), skip_bad=True)
