"""Warnings about what was read: copies of one image, and images that are nearly black."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from trees import copy_image, site_task, task_of, three_sites

from proud.data.csv_table import scan_csv
from proud.data.decode import PixelFormat, decode
from proud.data.folder import scan_folder


def test_copies_across_a_shipped_split_give_a_warning(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy_image(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "cat" / "003.png")
    lines = ["path,domain,label,split"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},{'val' if path.stem == '003' else 'train'}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    text = r"1 of the 2 validation images of central is also trained on, such as central/cat/003\.png"
    with pytest.warns(UserWarning, match=text):
        task_of(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", seed=1)


def test_images_of_the_test_domain_that_were_trained_on_are_counted(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy_image(tmp_path / "north" / "dog" / "000.png", tmp_path / "south" / "cat" / "copy.png")
    alone = r"1 of the 9 images of south is also trained on: its accuracy is not that of unseen data alone\."
    with pytest.warns(UserWarning, match=alone):
        assert site_task(tmp_path).report["test_images_also_in_training"] == 1
    for path in (tmp_path / "south").rglob("0*.png"):
        copy_image(tmp_path / "north" / path.relative_to(tmp_path / "south"), path)
    little = r"9 of the 9 images of south are also trained on: its accuracy says little about unseen data\."
    with pytest.warns(UserWarning, match=little) as caught:
        catalog = scan_folder(tmp_path)
        for seed in (1, 2):
            task_of(catalog, labeled="central", test="south", seed=seed)
    assert len(caught) == 1


def test_unreadable_files_are_not_counted_as_copies(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    for path in ("central/cat/000.png", "central/dog/000.png", "north/dog/000.png", "south/cat/000.png"):
        (tmp_path / path).write_bytes(b"")
    assert site_task(tmp_path, skip_bad=True).report["test_images_also_in_training"] == 0


def test_an_image_under_two_classes_gives_a_warning_and_is_trained_on(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy_image(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "dog" / "same.png")
    text = (
        r"1 image of central is there under more than one class, such as central/cat/000\.png \(cat\) and "
        r"central/dog/same\.png \(dog\)"
    )
    twice = decode(tmp_path / "central" / "cat" / "000.png", PixelFormat(18))
    for seed in range(5):
        with pytest.warns(UserWarning, match=text):
            labeled = site_task(tmp_path, seed=seed, val=0.5).training.labeled
        assert sum(torch.equal(image, twice) for image in labeled.images) == 2


def test_nearly_black_images_give_a_warning(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 2)
    for path in (root / "north").rglob("*.png"):
        deep = np.asarray(Image.open(path).convert("L")).astype(np.uint16) * 16  # 12 bits in 16
        Image.fromarray(deep).save(path)
    with pytest.warns(UserWarning, match=r"images of north are nearly black: no value above \d+ of 255"):
        site_task(root)
