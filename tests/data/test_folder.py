"""Domains and classes from folders, and warnings about what is not read."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from trees import site_task, task_of, three_sites, write_image, write_tree

from proud.config import TaskSpec
from proud.data.decode import PixelFormat, decode
from proud.data.folder import REPORT_MARK, nested_classes, scan_folder
from proud.data.roles import assign_roles, find_domain, no_unlabeled
from proud.errors import UserError


def test_folders_give_domains_and_labels(tmp_path: Path) -> None:
    write_tree(tmp_path, {"mnist": {"0": 2, "1": 1}, "mnist_m": {"0": 1}})
    write_image(tmp_path / "flat" / "b.PNG", 90)
    write_image(tmp_path / "flat" / "deep" / "er" / "a.jpeg", 91)
    catalog = scan_folder(tmp_path)
    assert list(catalog.domains) == ["flat", "mnist", "mnist_m"]
    assert [(entry.location, entry.label) for entry in catalog.domains["mnist"].entries] == [
        ("mnist/0/000.png", "0"),
        ("mnist/0/001.png", "0"),
        ("mnist/1/000.png", "1"),
    ]
    assert [(entry.location, entry.label) for entry in catalog.domains["flat"].entries] == [
        ("flat/b.PNG", None),
        ("flat/deep/er/a.jpeg", "deep"),
    ]


def test_hidden_and_foreign_files_are_ignored(tmp_path: Path) -> None:
    three_sites(tmp_path, 1)
    for name in (".hidden.png", "notes.txt", "Thumbs.db"):
        (tmp_path / "north" / "cat" / name).write_text("x")
    write_image(tmp_path / "north" / ".cache" / "x.png", 1)
    write_image(tmp_path / ".git" / "cat" / "x.png", 1)
    catalog = scan_folder(tmp_path)
    assert list(catalog.domains) == ["central", "north", "south"] and len(catalog.domains["north"].entries) == 2


def test_empty_class_folder_is_remembered(tmp_path: Path) -> None:
    three_sites(tmp_path, 1)
    (tmp_path / "central" / "bird").mkdir()
    assert scan_folder(tmp_path).domains["central"].empty_classes == ("bird",)


def test_links_that_leave_or_loop_are_not_followed(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    outside = write_image(tmp_path / "outside" / "x.png", 70)
    (root / "north" / "cat" / "leaves.png").symlink_to(outside)
    (root / "north" / "away").symlink_to(outside.parent)
    (root / "north" / "cat" / "loop").symlink_to(root / "north")
    (root / "north" / "cat" / "self").symlink_to(root / "north" / "cat")
    (root / "central" / "dog" / "there").symlink_to(root / "south")
    (root / "south" / "dog" / "back").symlink_to(root / "central" / "dog")
    (root / "north" / "dog" / "same.png").symlink_to(root / "north" / "cat" / "000.png")
    catalog = scan_folder(root)
    assert [entry.location for entry in catalog.domains["north"].entries] == [
        "north/cat/000.png",
        "north/dog/000.png",
        "north/dog/same.png",
    ]
    assert {"north/away", "north/cat/leaves.png", "north/cat/loop", "north/cat/self"} <= set(catalog.ignored_links)
    assert "central/dog/there/cat/000.png" in [entry.location for entry in catalog.domains["central"].entries]


def test_links_that_leave_a_domain_give_a_notice(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    outside = write_tree(tmp_path / "outside", {"site": {"bird": 1}}) / "site"
    (root / "central" / "bird").symlink_to(outside / "bird")
    (root / "central" / "round").symlink_to(root / "central")
    for number in range(7):
        (root / "north" / "cat" / f"more{number}.png").symlink_to(outside / "bird" / "000.png")
    for number in range(10):
        (root / "north" / f"{number}.heic").touch()
    (root / "east").mkdir()
    (root / "east" / "bird").symlink_to(outside / "bird")
    notices = scan_folder(root).notices
    assert list(notices) == ["central", "east", "north"]
    followed = "; --follow-links reads them"
    assert notices["central"] == f"central: 1 link that leaves the folder is not followed (central/bird){followed}"
    assert notices["north"].startswith("north: some files are not read (10 .heic; supported: .bmp")
    assert "; 7 links that leave the folder are not followed (north/cat/more0.png, " in notices["north"]
    assert notices["north"].endswith(f"and 2 more){followed}")
    assert "east has no images and is skipped (1 link that leaves the folder" in notices["east"]


def test_a_link_in_place_of_a_domain_gives_a_notice(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    shutil.move(root / "south", tmp_path / "south")
    (root / "south").symlink_to(tmp_path / "south")
    (root / "round").symlink_to(root)
    catalog = scan_folder(root)
    text = "south is a link that leaves the folder and is not followed without --follow-links"
    assert catalog.notices == {"south": text}
    assert not catalog.domains["south"].entries and "round" not in catalog.domains
    with pytest.raises(UserError, match=r"no domain 'south' in .*: south is a link that leaves .*: central, north$"):
        find_domain(catalog, "south")
    with pytest.raises(UserError, match="no domain 'round'"):
        find_domain(catalog, "round")
    assert not assign_roles(catalog, TaskSpec(labeled="central", test="north")).unlabeled
    assert re.search("No unlabeled domain is left.* not followed: south", str(no_unlabeled(catalog, "proud")))


def test_links_are_followed_on_request(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 2)
    whole = scan_folder(root)
    shutil.move(root / "south", tmp_path / "elsewhere" / "south")
    (root / "south").symlink_to(tmp_path / "elsewhere" / "south")
    (tmp_path / "elsewhere" / "south" / "cat" / "round").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "south" / "cat" / "up").symlink_to(root)
    catalog = scan_folder(root, follow_links=True)
    assert not catalog.notices and "south" in catalog.domains
    paths = [catalog.source(catalog.domains["south"], entry) for entry in catalog.domains["south"].entries]
    assert whole.domains["south"].entries == catalog.domains["south"].entries
    assert all(isinstance(path, Path) and path.is_file() for path in paths)
    assert set(catalog.ignored_links) == {"south/cat/round", "south/cat/up"}, "loops"


@pytest.mark.parametrize("names", [("train", "val"), ("Train", "VALID", "test"), ("train", "validation")])
def test_splits_are_not_taken_for_classes(names: tuple[str, ...], tmp_path: Path) -> None:
    root = three_sites(tmp_path, 1)
    write_tree(root / "east", {name: {"cat": 1, "dog": 1} for name in names})
    (root / "east" / "notes").mkdir()
    catalog = scan_folder(root)
    assert "look like splits, so its images have no labels" in catalog.notices["east"]
    refused = r"'east' look like splits, not classes: .* CSV file with .*`split`"
    with pytest.raises(UserError, match=refused):
        assign_roles(catalog, TaskSpec(labeled="east", test="north"))
    with pytest.raises(UserError, match=refused):
        assign_roles(catalog, TaskSpec(labeled="central", test="east"))
    unlabeled = assign_roles(
        catalog, TaskSpec(labeled="central", test="north")
    ).unlabeled  # no classes are needed there
    (east,) = (domain for domain in unlabeled if domain.name == "east")
    assert len(east.entries) == 2 * len(names) and not any(entry.label for entry in east.entries)


@pytest.mark.parametrize("more", ["east/train/b.png", "east/lorry/freight/b.png", "east/lorry/b.png"])
def test_classes_may_be_called_train_and_test(more: str, tmp_path: Path) -> None:
    """Vehicles, say, or test equipment."""
    for number, place in enumerate(("east/train/a.png", "east/test/a.png", "east/train/express/a.png", more)):
        write_image(tmp_path / place, number)
    write_tree(tmp_path / "west", {"train": {"express": 1}})
    domains = scan_folder(tmp_path).domains
    assert {entry.label for entry in domains["east"].entries} == {"test", "train", more.split("/")[1]}
    assert [entry.label for entry in domains["west"].entries] == ["train"]


def test_missing_and_empty_roots(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no folder"):
        scan_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="No images"):
        scan_folder(tmp_path)
    write_image(tmp_path / "loose.png", 1)
    with pytest.raises(UserError, match="1 images directly in it"):
        scan_folder(tmp_path)
    outside = three_sites(tmp_path / "elsewhere", 1)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "north").symlink_to(outside / "north")
    with pytest.raises(UserError, match="not followed: north"):
        scan_folder(tmp_path / "linked")


def test_one_unread_file_matters_only_among_few_images(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    (root / "north" / "cat" / "scan.nii").touch()
    assert scan_folder(root).notices["north"].startswith("north: some files are not read (1 .nii; supported:")
    for number in range(60):
        write_image(root / "north" / "cat" / f"{number}.png", number)
    assert not scan_folder(root).notices


@pytest.mark.parametrize("suffix", [".pgm", ".pnm", ".jfif", ".JPE"])
def test_other_names_for_the_same_formats(suffix: str, tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    kind = "PPM" if suffix.startswith(".p") else "JPEG"
    Image.new("L", (20, 20), 90).save(root / "north" / "cat" / f"grey{suffix}", kind)
    catalog = scan_folder(root)
    assert f"north/cat/grey{suffix}" in [entry.location for entry in catalog.domains["north"].entries]
    assert decode(root / "north" / "cat" / f"grey{suffix}", PixelFormat(8)).float().mean() == pytest.approx(90, abs=2)


def test_the_figures_of_a_report_are_not_a_domain(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    write_image(root / "report_files" / "figure.png", 1)
    assert "report_files" in scan_folder(root).domains
    (root / "report_files" / REPORT_MARK).write_text("{}")
    catalog = scan_folder(root)
    assert "report_files" not in catalog.domains
    assert catalog.notices == {"report_files": "report_files holds the figures of a report and is skipped"}


def test_a_level_above_the_classes_gives_a_warning(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"central": {"2021/cat": 1, "2021/dog": 1, "2022/cat": 1, "2022/dog": 1}})
    write_tree(root, {"north": {"cat": 1}})
    with pytest.warns(UserWarning, match="2021, 2022 of central are taken for its classes, .* same folders: cat, dog"):
        roles = assign_roles(scan_folder(root), TaskSpec(labeled="central"))
    assert roles.classes == ("2021", "2022")
    write_image(root / "central" / "2021" / "here.png", 5)
    assert not nested_classes(scan_folder(root).domains["central"])


def test_a_site_of_unreadable_formats_does_not_vanish_silently(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 2)
    (root / "east").mkdir()
    for place in range(12):
        (root / "east" / f"{place}.nii").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"east has no images and is skipped \(files: 12 \.nii; supported: \.bmp"):
        site_task(root)
    for place in range(12):
        (root / "north" / f"{place}.nii").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"north: some files are not read \(12 \.nii"):
        site_task(root, unlabeled=("north",))


def test_links_that_leave_the_folder_give_one_warning(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 2)
    outside = three_sites(tmp_path / "outside", 1)
    (root / "east").symlink_to(outside / "north")
    (root / "north" / "bird").symlink_to(outside / "north" / "cat")

    def warned(**options: Any) -> list[str]:
        catalog = scan_folder(root)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for seed in (1, 2):
                task_of(catalog, labeled="central", test="south", seed=seed, **options)
        return [str(warning.message) for warning in caught]

    links = "north: 1 link that leaves the folder is not followed (north/bird); --follow-links reads them"
    assert warned() == [links, "east is a link that leaves the folder and is not followed without --follow-links"]
    assert warned(unlabeled=("north",)) == [links]
    with pytest.raises(UserError, match=r"'east' .* east is a link that leaves the folder"):
        site_task(root, unlabeled=("north", "east"))


def test_notes_beside_the_images_give_no_warning(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 2)
    (root / "notes").mkdir()
    (root / "notes" / "read me.txt").write_text("hello")
    for place in range(20):
        (root / "north" / f"{place}.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        site_task(root)
