"""What is held out of the labeled domain."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from trees import copy_image, site_task, task_of, three_sites, write_tree

from proud.data.catalog import Entry
from proud.data.checks import ImageRow, held_out_too_many
from proud.data.csv_table import scan_csv
from proud.data.splits import mark, split_labeled


def test_validation_is_stratified_seeded_and_never_trained_on(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"a": 40, "b": 21, "c": 3, "d": 1}, "north": {"a": 2}})

    def held(seed: int, val: float = 0.1) -> tuple[list[bytes], list[bytes], list[int]]:
        task = site_task(tmp_path, test="none", seed=seed, val=val)
        validation, labeled = task.evaluation.validation, task.training.labeled
        assert validation is not None
        rows = [image.numpy().tobytes() for image in validation.images]
        return rows, [image.numpy().tobytes() for image in labeled.images], validation.labels.tolist()

    rows, trained, labels = held(1)
    assert Counter(labels) == {0: 4, 1: 2, 2: 1}  # the class with one image keeps it for training
    assert not set(rows) & set(trained) and len(rows) + len(trained) == 65
    assert held(1)[0] == rows and held(2)[0] != rows
    assert Counter(held(1, val=0.5)[2]) == {0: 20, 1: 10, 2: 2}
    assert Counter(held(1, val=0.99)[2]) == {0: 39, 1: 20, 2: 2}


def test_no_validation(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path), val=0)
    assert task.evaluation.validation is None and len(task.training.labeled) == 20


def test_csv_with_a_shipped_split(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    lines = ["path,domain,label,split"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        split = "val" if path.stem == "003" else "train"
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},{split}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    task = task_of(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", seed=1)
    assert len(task.training.labeled) == 6 and len(task.training.unlabeled[0]) == 6
    assert task.evaluation.validation is not None and len(task.evaluation.validation) == 2
    assert task.evaluation.test is not None and len(task.evaluation.test) == 8
    without = task_of(scan_csv(tmp_path / "data.csv"), labeled="central", seed=1, val=0)
    assert len(without.training.labeled) == 6 and without.evaluation.validation is None


def test_copies_are_on_one_side_of_the_split(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"a": 10, "b": 4}, "north": {"a": 2}})
    for path in sorted((tmp_path / "central").rglob("*.png")):
        for number in range(2):
            copy_image(path, path.with_name(f"{path.stem}-{number}.png"))
    for seed in range(10):
        task = site_task(tmp_path, test="none", seed=seed, val=0.2)
        validation = task.evaluation.validation
        assert validation is not None and Counter(validation.labels.tolist()) == {0: 6, 1: 3}
        held, trained = (
            {image.numpy().tobytes() for image in domain.images} for domain in (validation, task.training.labeled)
        )
        assert not held & trained and len(held) == 3 and len(trained) == 11


def test_the_split_of_a_data_set_without_copies_never_changes() -> None:
    """Published results depend on these draws."""
    entries = [Entry(f"{number}.png", "ab"[number % 3 == 0]) for number in range(40)]
    rows = [ImageRow(f"{number:064x}", entry) for number, entry in enumerate(entries)]
    train, held = split_labeled(rows, 0.2, 2022, ships_split=False)
    assert [int(row.content, 16) for row in held] == [2, 3, 5, 17, 21, 31, 33, 34]
    assert [row for row in rows if row not in held] == train


def grouped(labels: str, groups: str) -> list[ImageRow]:
    """One image per letter, of the class and the group that the letters name; a dot is no group."""
    pairs = enumerate(zip(labels, groups, strict=True))
    return [ImageRow(f"{row:04d}", Entry(f"{row}.png", label, None, group.strip("."))) for row, (label, group) in pairs]


@pytest.mark.parametrize("seed", range(8))
def test_images_of_a_group_stay_on_one_side(seed: int) -> None:
    rows = grouped("aaaabbbbaabbaaaabbbb", "112233..445566778899")
    train, held = split_labeled(rows, 0.25, seed, ships_split=False)
    assert sorted([*train, *held]) == rows and held
    sides = [{row.entry.group for row in part} - {""} for part in (train, held)]
    assert not sides[0] & sides[1]
    assert {row.entry.label for row in train} == {row.entry.label for row in held} == {"a", "b"}


def test_a_class_in_one_group_alone_is_trained_on() -> None:
    rows = grouped("aaaabb", "112233")
    for seed in range(8):
        train, held = split_labeled(rows, 0.5, seed, ships_split=False)
        assert {row.entry.label for row in train} == {"a", "b"} and {row.entry.label for row in held} == {"a"}


def sizes(*groups: int) -> list[ImageRow]:
    names = [str(number) for number, size in enumerate(groups) for _ in range(size)]
    return [ImageRow(f"{row:04d}", Entry(f"{row}.png", "a", None, name)) for row, name in enumerate(names)]


@pytest.mark.parametrize("seed", range(20))
def test_large_groups_are_not_held_out_where_smaller_ones_are_there(seed: int) -> None:
    for groups, most in (((90, 10), 10), ((30, 25, 20, 15, 5, 5), 15), ((50, 10, 10, 10, 10, 10), 10)):
        held = split_labeled(sizes(*groups), 0.1, seed, ships_split=False)[1]
        assert 5 <= len(held) <= most
    held = split_labeled(sizes(60, 40), 0.1, seed, ships_split=False)[1]
    assert len(held) == 40  # better than none


def test_far_more_validation_images_than_asked_for_are_reported() -> None:
    assert held_out_too_many("central", 20, [60, 40], 0.1) == held_out_too_many("central", 2, [4, 4], 0.1) == ""
    assert "40 of the 100 images of central are held out" in held_out_too_many("central", 40, [60, 40], 0.1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", ["." * 20, "112233445566778899.."])
def test_a_run_that_starts_from_a_model_keeps_its_validation_images(seed: int, groups: str) -> None:
    rows = grouped("ab" * 10, groups)
    train, held = split_labeled(rows, 0.2, seed, ships_split=False)
    before = {mark(row) for row in held}
    more = [row._replace(content=f"9{row.content}", entry=row.entry._replace(group="")) for row in rows]
    both = sorted([*rows, *more])
    again = split_labeled(both, 0.4, seed + 1, ships_split=False, before=before)
    assert again[1] == held and set(train) < set(again[0])
    assert split_labeled(rows, 0, seed, ships_split=False, before=before) == (rows, [])
    other = split_labeled(more, 0.2, seed, ships_split=False, before=before)[1]  # images that it never saw
    assert len(other) == 4


def test_copies_join_groups() -> None:
    first, second, *rest = grouped("aaaaaa", "112233")
    rows = [first, second, rest[0]._replace(content=first.content), *rest[1:]]
    for seed in range(8):
        held = split_labeled(rows, 0.3, seed, ships_split=False)[1]
        assert sum(row.entry.group in "12" for row in held) in (0, 4)


def test_groups_on_both_sides_are_reported(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    lines = ["path,domain,label,group"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},patient {path.stem if site != 'north' else 'x'}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match=r"groups of the domain south are also trained on, such as 'patient 00"):
        task = task_of(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", seed=1)
    assert task.training.labeled.groups is not None
    assert not set(task.training.labeled.groups) & set(task.evaluation.validation.groups)
