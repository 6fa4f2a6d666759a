"""`proud data check FOLDER`: sites, classes, copies, unreadable files, and what training would say."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from trees import three_sites, write_image

from proud.cli import main as cli
from proud.config import DomainSpec, ReadSpec
from proud.data import site_check
from proud.data.site_check import DataReport, check_data
from proud.errors import UserError


def checked(root: Path, labeled: str = "", skip_bad: bool = False) -> DataReport:
    return check_data(DomainSpec(str(root), labeled=labeled), ReadSpec(skip_bad=skip_bad))


def texts(report: DataReport, level: str) -> str:
    return "\n".join(finding.text for finding in report.findings if finding.level == level)


def test_clean_folders_pass(tmp_path: Path) -> None:
    report = checked(three_sites(tmp_path, 10), "central")
    assert report.exit_code == 0 and not texts(report, "refused") + texts(report, "warning")
    site = report.sites[0]
    assert (site.name, len(site.seen), dict(site.classes), site.copies) == ("central", 20, {"cat": 10, "dog": 10}, 0)
    assert site.kinds == "PNG RGB 20" and not site.can_be_labeled


def test_the_mess_is_named(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 10)
    (root / "north" / "cat" / "broken.png").write_bytes((root / "north" / "cat" / "000.png").read_bytes()[:60])
    shutil.copy(root / "central" / "cat" / "000.png", root / "central" / "dog" / "copy.png")
    shutil.copy(root / "central" / "cat" / "001.png", root / "south" / "cat" / "copy.png")
    shutil.move(root / "south" / "dog", root / "south" / "Dog")
    write_image(root / "west" / "1.png", 1)
    (root / "west" / "notes.heic").touch()
    (root / "east").symlink_to(tmp_path)
    report = checked(root)
    assert report.exit_code == 2
    assert texts(report, "refused") == "1 image cannot be read: training refuses them unless --skip-bad is given."
    assert [file.path for file in report.bad] == ["north/cat/broken.png"]
    warned = texts(report, "warning")
    for text in (
        "1 image of central is there under more than one class",
        "central: 1 image is there more than once",
        "1 image is in central and in south (central/cat/001.png and south/cat/copy.png)",
        "in different spellings: Dog, dog",
        "some files are not read (1 .heic",
        "east is a link that leaves the folder",
    ):
        assert text in warned, text
    assert {site.name: site.can_be_labeled for site in report.sites}["west"] == "no class folders"
    assert checked(root, skip_bad=True).exit_code == 1
    assert "have no label" in texts(checked(root, "west"), "refused")


def test_no_site_with_labels_is_refused(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/only/1.png"):
        write_image(tmp_path / name, 1)
    refused = texts(checked(tmp_path), "refused")
    assert "No domain can be the labeled one (a: no class folders; b: only one class)" in refused


def test_a_folder_of_classes_is_not_one_of_sites(tmp_path: Path) -> None:
    site = three_sites(tmp_path / "da ta", 2) / "central"
    hint = f"If the folders of {site} are classes, it is one site: name the folder above it, --data '{site.parent}' "
    refused = texts(checked(site), "refused")
    assert "cat: no class folders; dog: no class folders" in refused and hint + "--labeled central." in refused
    with pytest.raises(UserError, match="name the folder above it"):
        cli.run(["train", "--data", str(site), "--labeled", "cat", "--test", "none"])
    table = site.with_name("central.csv")  # whose images lie below the same folder
    table.write_text("path,domain,label\ncentral/cat/000.png,a,\ncentral/dog/000.png,b,\n")
    assert "name the folder above it" not in texts(checked(table), "refused")


def test_of_a_folder_of_data_sets_each_is_to_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_sites(tmp_path / "blood cells", 2)
    three_sites(tmp_path / "scenes", 2)
    assert cli.run(["data", "check", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"Next, if blood cells holds sites: proud data check '{tmp_path}/blood cells'" in told
    assert "proud train" not in told


def test_what_is_slow_small_long_or_dark_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_check, "LARGE", 9_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    root = three_sites(tmp_path, 10)
    draw = np.random.default_rng(0)
    for site, size in (("north", (100, 100, 3)), ("south", (40, 90, 3))):
        for path in (root / site).rglob("*.png"):
            Image.fromarray(draw.integers(0, 250, size, dtype=np.uint8)).save(path)
    Image.new("L", (100, 100), 3).save(root / "north" / "cat" / "000.png")
    Image.new("RGB", (8, 8), (9, 200, 9)).save(root / "north" / "cat" / "001.png")
    report = checked(root)
    notes, warned = texts(report, "note"), texts(report, "warning")
    assert "Slow to read: 19 images" in notes and "1 images have fewer than 32 pixels on a side" in notes
    assert "The images of south have an aspect ratio of 2.2" in warned
    assert "north: 1 images are nearly black, such as north/cat/000.png" in warned


def test_few_and_uneven_classes(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 3)
    for number in range(60):
        write_image(root / "central" / "cat" / f"more{number}.png", 100 + number)
    report = checked(root)
    assert "central: classes with fewer than 10 images: dog 3" in texts(report, "warning")
    assert "central: the largest class has 21 times as many images" in texts(report, "note")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = three_sites(tmp_path / "da ta", 10)
    assert cli.run(["data", "check", str(root), "--labeled", "central", "--test", "south"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for word in (
        "central",
        "images per class",
        "cat",
        "yes",
        "Next: proud train --data",
        "--labeled central --test south",
    ):
        assert word in output, word
    (root / "north" / "cat" / "000.png").write_bytes(b"no picture")
    assert cli.run(["data", "check", str(root)]) == 2
    output = capsys.readouterr().out
    assert "north/cat/000.png: not an image" in output and "Refused: 1 image cannot be read" in output
    assert "Next:" not in output


def test_long_names_of_sites_are_shown_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for site, year in zip(three_sites(tmp_path, 10).iterdir(), (2018, 2019, 2020), strict=True):
        site.rename(site.with_name(f"hospital_of_the_northern_district_{year}"))
    assert cli.run(["data", "check", str(tmp_path)]) == 0
    table = capsys.readouterr().out.partition("images per class")[0]
    assert all(str(year) in table for year in (2018, 2019, 2020))
