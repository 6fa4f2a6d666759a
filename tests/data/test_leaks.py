"""No hidden label can influence what a method gets."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trees import task_of, three_sites, write_image, write_tree

from proud.data.catalog import Catalog
from proud.data.folder import scan_folder
from proud.data.types import Audit, EvaluationData, TrainingData, UnlabeledDomain


def training_data(root: Path, held_out: float | None = None) -> TrainingData:
    found = scan_folder(root)
    catalog = Catalog(found.name, found.root, found.domains, held_out=held_out)
    return task_of(catalog, labeled="central", test="south", seed=3).training


def parts(value: Any) -> Iterator[Any]:
    """Everything that can be reached from an object."""
    yield value
    if isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from parts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from parts(key)
            yield from parts(item)
    elif dataclasses.is_dataclass(value):
        yield from parts(vars(value))


def flat(data: TrainingData) -> list[Any]:
    return [
        (part.dtype, tuple(part.shape), part.numpy().tobytes()) if isinstance(part, torch.Tensor) else part
        for part in parts(data)
        if isinstance(part, torch.Tensor | str | int)
    ]


def move_to_wrong_classes(site: Path) -> None:
    shuffle = random.Random(1)
    files = sorted(site.glob("*/*.png"))
    for number, path in enumerate(files):
        path.rename(site / shuffle.choice(["cat", "dog"]) / f"moved{number}.png")


def rename(site: Path) -> None:
    files = sorted(site.glob("*/*.png"))
    random.Random(2).shuffle(files)
    for number, path in enumerate(files):
        path.rename(path.with_name(f"new{number:04d}.PNG"))


def flatten(site: Path) -> None:
    for number, path in enumerate(sorted(site.glob("*/*.png"))):
        path.rename(site / f"{number}.png")
    for folder in list(site.iterdir()):
        if folder.is_dir():
            folder.rmdir()


def rename_classes(site: Path) -> None:
    (site / "cat").rename(site / "zebra")
    (site / "a").mkdir()
    (site / "dog").rename(site / "a" / "b")


@pytest.mark.parametrize("held_out", [None, 0.3])
@pytest.mark.parametrize("change", [move_to_wrong_classes, rename, flatten, rename_classes])
def test_moving_and_renaming_leaves_training_data_identical(
    tmp_path: Path, change: Callable[[Path], None], held_out: float | None
) -> None:
    counts = {"central": 3, "north": 10, "south": 1}
    site = write_tree(tmp_path, {name: {"cat": count, "dog": count} for name, count in counts.items()}) / "north"
    for number in range(3):  # the same image under two classes
        (site / "dog" / f"twin{number}.png").write_bytes((site / "cat" / f"{number:03d}.png").read_bytes())
    before = training_data(tmp_path, held_out)
    change(site)
    after = training_data(tmp_path, held_out)
    assert flat(before) == flat(after)
    assert len(before.unlabeled[0]) == 23 if held_out is None else 5 < len(before.unlabeled[0]) < 23


def test_other_domains_do_not_matter_either(tmp_path: Path) -> None:
    before = training_data(three_sites(tmp_path, 4))
    write_image(tmp_path / "south" / "cat" / "more.png", 500)
    assert flat(before) == flat(training_data(tmp_path))


def test_nothing_in_training_data_reaches_a_hidden_label(tmp_path: Path) -> None:
    data = training_data(three_sites(tmp_path, 4))
    assert not [part for part in parts(data) if isinstance(part, Audit | EvaluationData | Path)]
    integer_tensors = [part for part in parts(data) if isinstance(part, torch.Tensor) and part.dtype != torch.uint8]
    assert len(integer_tensors) == 1 and integer_tensors[0] is data.labeled.labels
    for domain in data.unlabeled:
        words = [part for part in parts(domain) if isinstance(part, str)]
        assert not [word for word in words if any(name in word for name in ("cat", "dog", "/", ".png"))]


def test_types_have_no_field_for_hidden_labels() -> None:
    assert [field.name for field in dataclasses.fields(TrainingData)] == ["classes", "labeled", "unlabeled"]
    assert [field.name for field in dataclasses.fields(UnlabeledDomain)] == ["name", "images", "ids", "known"]
