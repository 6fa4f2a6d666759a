"""`proud data check`: what it counts and advises."""

from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from trees import PACS, SHARED_DATA, digits_tree, pacs_tree

from proud.data.benchmark_check import check
from proud.data.benchmarks import BENCHMARKS, open_catalog
from proud.data.walk import IMAGE_SUFFIXES
from proud.errors import UserError


def test_check_counts_and_advises(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    (tmp_path / "images" / "photo" / "dog" / "pic_001.jpg").write_bytes(b"")
    result = check("pacs", tmp_path)
    rows = {row.domain: row for row in result.rows}
    assert not result.ok and rows["photo"].status == "1 empty files"
    assert (rows["sketch"].found, rows["sketch"].expected) == (8, 3929)
    assert rows["sketch"].status == "2 classes instead of 7"
    assert (rows["photo train"].found, rows["photo train"].expected) == (6, 1499)
    assert rows["photo train"].status == "1493 too few"
    assert "Li et al. 2017" in result.advice and "ROOT/images/<domain>/<class>" in result.advice


def test_check_without_lists_or_domains(tmp_path: Path) -> None:
    pacs_tree(tmp_path, lists=None)
    result = check("PACS", tmp_path)
    assert {row.domain: row.status for row in result.rows}["photo split"] == "missing"
    assert "one image in ten is held out by content hash" in result.advice
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
        open_catalog("pacs", tmp_path)
    rows = {row.domain: row for row in check("pacs", tmp_path).rows}
    assert rows["photo train"].status == "1 that the list names are not there"
    assert (rows["photo train"].found, rows["photo"].found) == (5, 8)


def test_check_with_lists_of_some_domains_agrees_with_training(tmp_path: Path) -> None:
    pacs_tree(tmp_path)
    for path in tmp_path.rglob("sketch_*_kfold.txt"):
        path.unlink()
    with pytest.raises(UserError, match="no train/val split for sketch"):
        open_catalog("pacs", tmp_path)
    advice = check("pacs", tmp_path).advice
    assert "there is none of sketch." in advice and "held out by content hash" not in advice


def test_check_of_domains_with_too_few_images(tmp_path: Path) -> None:
    digits_tree(tmp_path)
    rows = {row.domain: row for row in check("digits-dg", tmp_path).rows}
    assert rows["mnist"].status == "5970 too few" and rows["mnist_m val"].found == 10


def test_check_of_a_complete_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict.fromkeys(BENCHMARKS["digits-dg"].counts, (20, 10))
    monkeypatch.setitem(BENCHMARKS, "digits-dg", replace(BENCHMARKS["digits-dg"], counts=counts))
    result = check("digits-dg", digits_tree(tmp_path))
    assert result.ok and result.advice.startswith(f"digits-dg in {tmp_path} is complete.\n")
    assert "Zhou et al. 2020" in result.advice
    assert [row.status for row in result.rows] == ["ok"] * 12  # 4 domains, and both parts of each
    shutil.rmtree(tmp_path / "mnist_m")
    shutil.rmtree(tmp_path / "syn" / "train" / "7")
    result = check("digits-dg", tmp_path)
    wrong = {row.domain: row.status for row in result.rows if row.status != "ok"}
    assert not result.ok and wrong == {"mnist_m": "missing", "syn": "2 too few", "syn train": "2 too few"}


def test_published_numbers_are_those_of_the_real_digits() -> None:
    archive = SHARED_DATA / "digits_dg" / "mnist.tar.gz"
    if not archive.is_file():
        pytest.skip("no ../shared/data/digits_dg/mnist.tar.gz beside the repository")
    with tarfile.open(archive) as file:
        images = [member for member in file if member.isfile()]
    parts = [Path(image.name).parts for image in images]
    assert Counter((domain, split) for *_, domain, split, _, _ in parts) == {
        ("mnist", split): count
        for split, count in zip(("train", "val"), BENCHMARKS["digits-dg"].counts["mnist"], strict=True)
    }
    assert len({label for *_, label, _ in parts}) == BENCHMARKS["digits-dg"].classes
    assert {Path(image.name).suffix for image in images} <= IMAGE_SUFFIXES and all(image.size for image in images)


def test_published_numbers_are_those_of_the_real_pacs_lists(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["wbc", "rsscn7"])
def test_numbers_of_real_sites_are_those_of_the_archives(name: str) -> None:
    benchmark = BENCHMARKS[name]
    archives = [SHARED_DATA / name / f"{domain}.tar.gz" for domain in benchmark.counts]
    if not all(archive.is_file() for archive in archives):
        pytest.skip(f"no ../shared/data/{name} beside the repository")
    for archive, counts in zip(archives, benchmark.counts.values(), strict=True):
        with tarfile.open(archive) as file:
            parts = [Path(member.name).parts for member in file if member.isfile()]
        assert (len(parts),) == counts
        assert len({label for *_, label, _ in parts}) == benchmark.classes


def test_sites_of_wbc_are_the_same_as_folders_of_one_s_own(tmp_path: Path) -> None:
    for domain in BENCHMARKS["wbc"].counts:
        for label in ("eosinophil", "monocyte"):
            (tmp_path / domain / label).mkdir(parents=True)
            for number in range(3):
                (tmp_path / domain / label / f"{number}.webp").write_bytes(b"x")
    named, own = open_catalog("wbc", tmp_path), open_catalog(tmp_path)
    assert named.held_out is None  # as in folders of one's own, all unlabeled images are trained on
    assert {name: domain.entries for name, domain in named.domains.items()} == {
        name: own.domains[name].entries for name in named.domains
    }
