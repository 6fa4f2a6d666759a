"""What is told of a data set before it is learned from: copies, files that are not read, images without light."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from trees import site_task, three_sites, write_tree

from proud.data.task import assemble
from proud.data.catalog import Entry, scan_csv, scan_folder
from proud.data.copies import Row
from proud.data.splits import split_labeled
from proud.data.decode import decode
from proud.errors import UserError


def copy(path: Path, to: Path) -> None:
    to.write_bytes(path.read_bytes())


def test_copies_across_a_shipped_split_are_told(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "cat" / "003.png")
    lines = ["path,domain,label,split"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},{'val' if path.stem == '003' else 'train'}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    told = r"1 of the 2 validation images of central is also trained on, such as central/cat/003\.png"
    with pytest.warns(UserWarning, match=told):
        assemble(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", size=16, seed=1)


def test_images_of_the_test_domain_that_were_trained_on_are_counted(tmp_path: Path) -> None:
    three_sites(tmp_path)
    copy(tmp_path / "north" / "dog" / "000.png", tmp_path / "south" / "cat" / "copy.png")
    alone = r"1 of the 21 images of south is also learned from: its accuracy is not that of unseen data alone\."
    with pytest.warns(UserWarning, match=alone):
        assert site_task(tmp_path).report["test_images_also_in_training"] == 1
    for path in (tmp_path / "south").rglob("0*.png"):
        copy(tmp_path / "north" / path.relative_to(tmp_path / "south"), path)
    little = r"21 of the 21 images of south are also learned from: its accuracy says little about unseen data\."
    with pytest.warns(UserWarning, match=little) as told:
        catalog = scan_folder(tmp_path)
        for seed in (1, 2):
            assemble(catalog, labeled="central", test="south", size=16, seed=seed)
    assert len(told) == 1


def test_files_that_cannot_be_read_are_copies_of_nothing(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    for path in ("central/cat/000.png", "central/dog/000.png", "north/dog/000.png", "south/cat/000.png"):
        (tmp_path / path).write_bytes(b"")
    assert site_task(tmp_path, skip_bad=True).report["test_images_also_in_training"] == 0


def test_copies_are_on_one_side_of_the_split(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"a": 10, "b": 4}, "north": {"a": 2}})
    for path in sorted((tmp_path / "central").rglob("*.png")):
        for number in range(2):
            copy(path, path.with_name(f"{path.stem}-{number}.png"))
    for seed in range(10):
        task = site_task(tmp_path, test=None, seed=seed, val=0.2)
        validation = task.evaluation.validation
        assert validation is not None and Counter(validation.labels.tolist()) == {0: 6, 1: 3}
        held, trained = (
            {image.numpy().tobytes() for image in domain.images} for domain in (validation, task.training.labeled)
        )
        assert not held & trained and len(held) == 3 and len(trained) == 11


def test_without_copies_the_split_is_as_it_always_was() -> None:
    """Published results depend on these draws."""
    entries = [Entry(f"{number}.png", "ab"[number % 3 == 0]) for number in range(40)]
    rows = [Row(f"{number:064x}", entry) for number, entry in enumerate(entries)]
    train, held = split_labeled(rows, 0.2, 2022, ships_split=False)
    assert [int(row.content, 16) for row in held] == [2, 3, 5, 17, 21, 31, 33, 34]
    assert [row for row in rows if row not in held] == train


def test_an_image_under_two_classes_is_told_and_trained_on(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "dog" / "same.png")
    text = (
        r"1 image of central is there under more than one class, such as central/cat/000\.png \(cat\) and "
        r"central/dog/same\.png \(dog\)"
    )
    twice = decode(tmp_path / "central" / "cat" / "000.png", 18)
    for seed in range(5):
        with pytest.warns(UserWarning, match=text):
            labeled = site_task(tmp_path, seed=seed, val=0.5).training.labeled
        assert sum(torch.equal(image, twice) for image in labeled.images) == 2


def test_a_site_of_files_that_are_not_read_does_not_vanish_silently(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    (root / "east").mkdir()
    for place in range(12):
        (root / "east" / f"{place}.dcm").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"east holds no images and is left out \(files: 12 \.dcm; read are \.bmp"):
        site_task(root)
    for place in range(12):
        (root / "north" / f"{place}.dcm").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"north: not all files are read \(not: 12 \.dcm"):
        site_task(root, unlabeled=["north"])


def test_links_that_leave_the_folder_are_told_once(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root")
    outside = three_sites(tmp_path / "outside")
    (root / "east").symlink_to(outside / "north")
    (root / "north" / "bird").symlink_to(outside / "north" / "cat")

    def told(**options: Any) -> list[str]:
        catalog = scan_folder(root)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for seed in (1, 2):
                assemble(catalog, labeled="central", test="south", size=16, seed=seed, **options)
        return [str(warning.message) for warning in caught]

    links = "north: 1 link that leaves the folder is not followed (north/bird)"
    assert told() == [links, "east is a link that leaves the folder and is not followed"]
    assert told(unlabeled=["north"]) == [links]
    with pytest.raises(UserError, match=r"'east' .* east is a link that leaves the folder"):
        site_task(root, unlabeled=["north", "east"])


def test_a_few_other_files_are_no_news(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    (root / "notes").mkdir()
    (root / "notes" / "read me.txt").write_text("hello")
    for place in range(20):
        (root / "north" / f"{place}.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        site_task(root)


def test_images_without_light_are_told(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    for path in (root / "north").rglob("*.png"):
        deep = np.asarray(Image.open(path).convert("L")).astype(np.uint16) * 16  # 12 bits in 16
        Image.fromarray(deep).save(path)
    with pytest.warns(UserWarning, match=r"images of north are nearly black: no value above \d+ of 255"):
        site_task(root)
