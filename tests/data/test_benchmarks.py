from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from trees import SHARED_DATA, three_sites, write_image

from proud.data.task import assemble
from proud.data.benchmarks import catalog_for, check
from proud.errors import UserError

PACS = ("photo", "art_painting", "cartoon", "sketch")


def digits_tree(root: Path) -> Path:
    seed = 0
    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        for split, count in (("train", 4), ("val", 1)):
            for digit in range(10):
                for number in range(count):
                    seed += 1
                    write_image(root / domain / split / str(digit) / f"{number}.png", seed)
    return root


def pacs_tree(root: Path, images: str = "images", lists: str | None = "splits", per_class: int = 10) -> Path:
    seed = 0
    for domain in PACS:
        lines: dict[str, list[str]] = {"train": [], "crossval": [], "test": []}
        for number, label in enumerate(("dog", "horse"), start=1):
            for row in range(per_class):
                seed += 1
                write_image(root / images / domain / label / f"pic_{row:03d}.jpg", seed)
                line = f"{domain}/{label}/pic_{row:03d}.jpg {number}"
                lines["crossval" if row == 0 else "train"].append(line)
                lines["test"].append(line)
        if lists is not None:
            (root / lists).mkdir(exist_ok=True, parents=True)
            for name, text in lines.items():
                (root / lists / f"{domain}_{name}_kfold.txt").write_text("\n".join(text) + "\n")
    return root


def office_tree(root: Path, real_world: str = "Real World", per_class: int = 20) -> Path:
    seed = 0
    for domain in ("Art", "Clipart", "Product", real_world):
        for label in ("Alarm_Clock", "Backpack", "ToothBrush"):
            for number in range(per_class):
                seed += 1
                write_image(root / domain / label / f"{number + 1:05d}.jpg", seed)
    return root


@pytest.mark.parametrize("below", ["", "digits_dg", "some/where"])
def test_digits_dg(tmp_path: Path, below: str) -> None:
    digits_tree(tmp_path / below)
    catalog = catalog_for("digits-dg", tmp_path)
    assert list(catalog.domains) == ["mnist", "mnist_m", "svhn", "syn"]
    task = assemble(catalog, labeled="mnist", test="syn", size=16, seed=1)
    assert len(task.training.labeled) == 40 and [len(domain) for domain in task.training.unlabeled] == [40, 40]
    assert task.evaluation.validation is not None and len(task.evaluation.validation) == 10
    assert task.evaluation.test is not None and len(task.evaluation.test) == 50


def test_digits_dg_needs_its_split(tmp_path: Path) -> None:
    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        write_image(tmp_path / domain / "0" / "x.png", 1)
    with pytest.raises(UserError, match="no train/val split for mnist"):
        catalog_for("digits_dg", tmp_path)


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
    catalog = catalog_for("pacs", pacs_tree(tmp_path, images, lists))
    assert list(catalog.domains) == list(PACS) and catalog.held_out is None
    assert Counter(entry.split for entry in catalog.domains["photo"].entries) == {"train": 18, "val": 2}
    task = assemble(catalog, labeled="photo", test="sketch", size=16, seed=1)
    assert task.training.classes == ("dog", "horse") and len(task.training.labeled) == 18
    assert [len(domain) for domain in task.training.unlabeled] == [18, 18]
    assert task.evaluation.test is not None and len(task.evaluation.test) == 20


def test_pacs_without_lists_holds_out_a_tenth(tmp_path: Path) -> None:
    catalog = catalog_for("pacs", pacs_tree(tmp_path, lists=None, per_class=30))
    task = assemble(catalog, labeled="photo", test="sketch", size=16, seed=1)
    assert len(task.training.labeled) == 54
    assert task.evaluation.validation is not None and Counter(task.evaluation.validation.labels.tolist()) == {
        0: 3,
        1: 3,
    }
    assert all(45 <= len(domain) < 60 for domain in task.training.unlabeled)
    assert all(int(identity[:8], 16) / 2**32 >= 0.1 for domain in task.training.unlabeled for identity in domain.ids)
    assert task.evaluation.test is not None and len(task.evaluation.test) == 60


def test_pacs_lists_that_do_not_fit(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path)
    (root / "images" / "cartoon" / "dog" / "pic_003.jpg").unlink()
    with pytest.raises(UserError, match=r"1 images that the split lists of 'cartoon' name.*pic_003\.jpg"):
        catalog_for("pacs", root)
    (root / "splits" / "photo_train_kfold.txt").write_text("nonsense\n")
    with pytest.raises(UserError, match="expected lines like"):
        catalog_for("pacs", root)


def test_pacs_with_some_lists_only(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path)
    (root / "splits" / "sketch_train_kfold.txt").unlink()
    with pytest.raises(UserError, match="no train/val split for sketch"):
        catalog_for("pacs", root)


def test_a_folder_named_like_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    three_sites(tmp_path / "pacs", 1)
    assert list(catalog_for("pacs").domains) == ["central", "north", "south"]
    pacs_tree(tmp_path / "pacs")
    assert list(catalog_for("pacs").domains) == list(PACS)


@pytest.mark.parametrize("spelling", ["Real World", "Real_World", "RealWorld", "Real-World", "real_world", "REALWORLD"])
def test_office_home_spellings(tmp_path: Path, spelling: str) -> None:
    office_tree(tmp_path / "OfficeHomeDataset", spelling, per_class=1)
    catalog = catalog_for("office-home", tmp_path)
    assert list(catalog.domains) == ["art", "clipart", "product", "real_world"]
    assert catalog.domains["real_world"].entries[0].location.split("/")[1] == spelling


def test_office_home_task(tmp_path: Path) -> None:
    task = assemble(
        catalog_for("office-home", office_tree(tmp_path)), labeled="art", test="real_world", size=16, seed=1
    )
    assert task.training.classes == ("Alarm_Clock", "Backpack", "ToothBrush") and len(task.training.labeled) == 54
    assert all(40 < len(domain) < 60 for domain in task.training.unlabeled)
    assert task.evaluation.test is not None and len(task.evaluation.test) == 60


def test_catalog_for_paths_and_names(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "pacs" / "x", 1)
    assert list(catalog_for(root).domains) == ["central", "north", "south"]
    (root / "data.csv").write_text("path,domain,label\ncentral/cat/000.png,a,cat\n")
    assert list(catalog_for(root / "data.csv").domains) == ["a"]
    assert list(catalog_for("embedded").domains) == ["pen", "texture", "print", "street"]
    for wrong, message in [
        ("pacs", "--root DIR"),
        (str(tmp_path / "nowhere"), "no folder or CSV"),
        (str(root / "central" / "cat" / "000.png"), "neither a folder"),
    ]:
        with pytest.raises(UserError, match=message):
            catalog_for(wrong)
    with pytest.raises(UserError, match=r"no benchmark 'domainnet'.*digits-dg, pacs, office-home"):
        catalog_for("domainnet", root)
    with pytest.raises(UserError, match="lacks photo, art_painting, cartoon, sketch"):
        catalog_for("pacs", root)


def test_domain_folders_that_are_links_out_are_explained(tmp_path: Path) -> None:
    root = pacs_tree(tmp_path / "a")
    (root / "images" / "sketch").rename(tmp_path / "sketch")
    (root / "images" / "sketch").symlink_to(tmp_path / "sketch")
    with pytest.raises(UserError, match=r"lacks sketch.*not followed: images/sketch"):
        catalog_for("pacs", root)


def test_a_split_without_one_half_is_refused(tmp_path: Path) -> None:
    digits_tree(tmp_path)
    shutil.rmtree(tmp_path / "svhn" / "val")
    with pytest.raises(UserError, match="no val images of svhn"):
        catalog_for("digits-dg", tmp_path)


def test_check_counts_and_advises(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    (tmp_path / "images" / "photo" / "dog" / "pic_001.jpg").write_bytes(b"")
    result = check("pacs", tmp_path)
    rows = {row.domain: row for row in result.rows}
    assert not result.ok and rows["photo"].status == "1 empty files"
    assert (rows["sketch"].found, rows["sketch"].expected) == (20, 3929)
    assert rows["sketch"].status == "2 classes instead of 7"
    assert (rows["photo train"].found, rows["photo train"].expected) == (18, 1499)
    assert rows["photo train"].status == "1481 too few"
    assert "Li et al. 2017" in result.advice and "ROOT/images/<domain>/<class>" in result.advice


def test_check_without_lists_or_domains(tmp_path: Path) -> None:
    pacs_tree(tmp_path, lists=None)
    result = check("PACS", tmp_path)
    assert {row.domain: row.status for row in result.rows}["photo split"] == "missing"
    assert "rule of our own" in result.advice
    result = check("office-home", tmp_path)
    assert [(row.domain, row.found, row.status) for row in result.rows][3] == ("real_world", 0, "missing")
    with pytest.raises(UserError, match="no benchmark"):
        check("imagenet", tmp_path)
    with pytest.raises(UserError, match="no folder"):
        check("pacs", tmp_path / "nowhere")


def test_check_looks_for_the_images_that_lists_name(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    at = tmp_path / "images" / "photo" / "dog" / "pic_001.jpg"
    at.rename(at.with_name("other.jpg"))
    with pytest.raises(UserError, match=r"1 images .*: photo/dog/pic_001.jpg\..*data check pacs"):
        catalog_for("pacs", tmp_path)
    rows = {row.domain: row for row in check("pacs", tmp_path).rows}
    assert rows["photo train"].status == "1 that the list names are not there"
    assert (rows["photo train"].found, rows["photo"].found) == (17, 20)


def test_check_with_lists_of_some_domains_says_what_training_would(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    for path in tmp_path.rglob("sketch_*_kfold.txt"):
        path.unlink()
    with pytest.raises(UserError, match="no train/val split for sketch"):
        catalog_for("pacs", tmp_path)
    advice = check("pacs", tmp_path).advice
    assert "there is none of sketch." in advice and "rule of our own" not in advice


def test_lists_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    at = next(tmp_path.rglob("photo_train_kfold.txt"))
    at.write_text("photo/../secret.jpg 1\n")
    with pytest.raises(UserError, match="expected lines like"):
        catalog_for("pacs", tmp_path)


def test_check_of_a_domain_too_full(tmp_path: Path) -> None:
    digits_tree(tmp_path)
    rows = {row.domain: row for row in check("digits-dg", tmp_path).rows}
    assert rows["mnist"].status == "5950 too few" and rows["mnist_m val"].found == 10


def test_real_digits(tmp_path: Path) -> None:
    archive = SHARED_DATA / "digits_dg" / "mnist.tar.gz"
    if not archive.is_file():
        pytest.skip("no ../shared/data/digits_dg/mnist.tar.gz beside the repository")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    rows = {row.domain: row for row in check("digits-dg", tmp_path).rows}
    assert [rows[name].status for name in ("mnist", "mnist train", "mnist val")] == ["ok"] * 3
    assert rows["mnist_m"].status == "missing"


def test_real_pacs_lists(tmp_path: Path) -> None:
    archive = SHARED_DATA / "pacs" / "splits.tar.gz"
    if not archive.is_file():
        pytest.skip("no ../shared/data/pacs/splits.tar.gz beside the repository")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    for domain in PACS:
        (tmp_path / "pacs" / "images" / domain).mkdir(parents=True)
    rows = {row.domain: row for row in check("pacs", tmp_path).rows}
    for row in (rows[f"{domain} {split}"] for domain in PACS for split in ("train", "val")):
        assert row.status == f"{row.expected} that the list names are not there"
