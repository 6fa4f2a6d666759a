"""Public benchmarks in their own layouts, and data sets by name or path."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from trees import PACS, digits_tree, office_tree, pacs_tree, task_of, three_sites, write_image

from proud.data.benchmarks import open_catalog
from proud.errors import UserError


@pytest.mark.parametrize("below", ["", "digits_dg", "some/where"])
def test_digits_dg(tmp_path: Path, below: str) -> None:
    digits_tree(tmp_path / below)
    catalog = open_catalog("digits-dg", tmp_path)
    assert list(catalog.domains) == ["mnist", "mnist_m", "svhn", "syn"]
    task = task_of(catalog, labeled="mnist", test="syn", seed=1)
    assert len(task.training.labeled) == 20 and [len(domain) for domain in task.training.unlabeled] == [20, 20]
    assert task.evaluation.validation is not None and len(task.evaluation.validation) == 10
    assert task.evaluation.test is not None and len(task.evaluation.test) == 30


def test_digits_dg_needs_its_split(tmp_path: Path) -> None:
    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        write_image(tmp_path / domain / "0" / "x.png", 1)
    with pytest.raises(UserError, match="no train/val split for mnist"):
        open_catalog("digits_dg", tmp_path)


@pytest.mark.parametrize(
    ("images", "lists"),
    [
        ("images", "splits"),
        ("pacs/images", "pacs/splits"),
        ("kfold", "lists of the split"),
        ("", "splits"),
        ("kfold", ""),
    ],
)
def test_pacs_with_its_lists(tmp_path: Path, images: str, lists: str) -> None:
    catalog = open_catalog("pacs", pacs_tree(tmp_path, images, lists))
    assert list(catalog.domains) == list(PACS) and catalog.held_out is None
    assert Counter(entry.split for entry in catalog.domains["photo"].entries) == {"train": 6, "val": 2}
    task = task_of(catalog, labeled="photo", test="sketch", seed=1)
    assert task.training.classes == ("dog", "horse") and len(task.training.labeled) == 6
    assert [len(domain) for domain in task.training.unlabeled] == [6, 6]
    assert task.evaluation.test is not None and len(task.evaluation.test) == 8


def test_pacs_without_lists_holds_out_a_tenth(tmp_path: Path) -> None:
    catalog = open_catalog("pacs", pacs_tree(tmp_path, lists=None, per_class=30))
    task = task_of(catalog, labeled="photo", test="sketch", seed=1)
    assert len(task.training.labeled) == 54
    validation = task.evaluation.validation
    assert validation is not None and Counter(validation.labels.tolist()) == {0: 3, 1: 3}
    assert all(45 <= len(domain) < 60 for domain in task.training.unlabeled)
    assert all(int(identity[:8], 16) / 2**32 >= 0.1 for domain in task.training.unlabeled for identity in domain.ids)
    assert task.evaluation.test is not None and len(task.evaluation.test) == 60


def test_pacs_lists_that_do_not_fit(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path)
    (root / "images" / "cartoon" / "dog" / "pic_003.jpg").unlink()
    with pytest.raises(UserError, match=r"1 images that the split lists of 'cartoon' name.*pic_003\.jpg"):
        open_catalog("pacs", root)
    (root / "splits" / "photo_train_kfold.txt").write_text("nonsense\n")
    with pytest.raises(UserError, match="expected lines like"):
        open_catalog("pacs", root)


def test_pacs_with_some_lists_only(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path)
    (root / "splits" / "sketch_train_kfold.txt").unlink()
    with pytest.raises(UserError, match="no train/val split for sketch"):
        open_catalog("pacs", root)


def test_a_folder_named_like_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    three_sites(tmp_path / "pacs", 1)
    assert list(open_catalog("pacs").domains) == ["central", "north", "south"]
    pacs_tree(tmp_path / "pacs")
    assert list(open_catalog("pacs").domains) == list(PACS)


@pytest.mark.parametrize("spelling", ["Real World", "Real_World", "RealWorld", "Real-World", "real_world", "REALWORLD"])
def test_office_home_spellings(tmp_path: Path, spelling: str) -> None:
    office_tree(tmp_path / "OfficeHomeDataset", spelling, per_class=1)
    catalog = open_catalog("office-home", tmp_path)
    assert list(catalog.domains) == ["art", "clipart", "product", "real_world"]
    assert catalog.domains["real_world"].entries[0].location.split("/")[1] == spelling


def test_office_home_task(tmp_path: Path) -> None:
    task = task_of(open_catalog("office-home", office_tree(tmp_path)), labeled="art", test="real_world", seed=1)
    assert task.training.classes == ("Alarm_Clock", "Backpack", "ToothBrush") and len(task.training.labeled) == 54
    assert all(40 < len(domain) < 60 for domain in task.training.unlabeled)
    assert task.evaluation.test is not None and len(task.evaluation.test) == 60


def test_paths_and_names(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "pacs" / "x", 1)
    assert list(open_catalog(root).domains) == ["central", "north", "south"]
    (root / "data.csv").write_text("path,domain,label\ncentral/cat/000.png,a,cat\n")
    assert list(open_catalog(root / "data.csv").domains) == ["a"]
    assert list(open_catalog("embedded").domains) == ["pen", "texture", "print", "street"]
    for wrong, message in [
        ("pacs", "--root DIR"),
        (str(tmp_path / "nowhere"), "no folder or CSV"),
        (str(root / "central" / "cat" / "000.png"), "neither a folder"),
    ]:
        with pytest.raises(UserError, match=message):
            open_catalog(wrong)
    with pytest.raises(UserError, match=r"no benchmark 'domainnet'.*digits-dg, pacs, office-home"):
        open_catalog("domainnet", root)
    with pytest.raises(UserError, match="lacks photo, art_painting, cartoon, sketch"):
        open_catalog("pacs", root)


def test_domain_folders_that_are_links_out_are_named(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path / "a")
    (root / "images" / "sketch").rename(tmp_path / "sketch")
    (root / "images" / "sketch").symlink_to(tmp_path / "sketch")
    with pytest.raises(UserError, match=r"lacks sketch.*not followed: images/sketch"):
        open_catalog("pacs", root)


def test_a_split_without_one_half_is_refused(tmp_path: Path) -> None:
    digits_tree(tmp_path)
    shutil.rmtree(tmp_path / "svhn" / "val")
    with pytest.raises(UserError, match="no val images of svhn"):
        open_catalog("digits-dg", tmp_path)


def test_lists_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    at = next(tmp_path.rglob("photo_train_kfold.txt"))
    at.write_text("photo/../secret.jpg 1\n")
    with pytest.raises(UserError, match="expected lines like"):
        open_catalog("pacs", tmp_path)
