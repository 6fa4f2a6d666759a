"""Folders, arrays and domain types in Python. Nothing is skipped without a warning."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from trees import LABELS, batch, pixels, three_sites, write_image

from proud import ProUD
from proud.data.python_inputs import Site, Sites, catalog_of
from proud.data.types import LabeledDomain, UnlabeledDomain
from proud.errors import UserError
from toy import task_from


def test_unread_files_and_links_give_a_warning(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    for number in range(10):
        (root / "central" / "cat" / f"{number}.heic").touch()
    (root / "central" / "bird").symlink_to(write_image(tmp_path / "outside" / "a.png", 1).parent)
    expected = r"central: some files are not read \(10 \.heic; .*; 1 link that leaves the folder is .* \(bird\)"
    with pytest.warns(UserWarning, match=expected):
        domain = Sites().folder(root / "central")
    assert len(domain.entries) == 2
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.heic").touch()
    with pytest.raises(UserError, match=r"no images in .*none \(files: 1 \.heic; supported:"):
        Sites().folder(tmp_path / "none")


def test_folders_of_the_same_name_get_different_names(tmp_path: Path) -> None:
    first, second = three_sites(tmp_path / "first", 1), three_sites(tmp_path / "second", 1)
    sites = Sites()
    assert [sites.folder(root / "north").name for root in (first, second)] == ["north", "north (2)"]
    with pytest.raises(UserError, match="given twice: every domain needs a folder of its own"):
        sites.folder(first / "south" / ".." / "north")
    with pytest.raises(UserError, match="There is no folder"):
        sites.unlabeled(Site(1, tmp_path / "third"))


@pytest.mark.parametrize("mixed", [False, True])
def test_skipped_images_give_a_warning(mixed: bool, tmp_path: Path) -> None:
    root = three_sites(tmp_path, 3)
    for number in range(6):
        (root / "north" / "cat" / f"bad{number}.png").write_bytes(b"no image")
    given: dict[str, Any] = {
        "labeled": root / "central",
        "unlabeled": [root / "north", pixels(1)[None] if mixed else root / "south"],
    }
    with pytest.raises(UserError, match="6 images cannot be used"):
        task_from(**given, size=16)
    assert len(task_from(**given, size=16, skip_bad=True).training.unlabeled[0]) == 6
    model = ProUD(method="erm", size=16, epochs=1, pretrain_epochs=0, batch_size=4, device="cpu", skip_bad=True)
    with pytest.warns(UserWarning, match=r"6 unreadable images are skipped: .*bad\d\.png.* and 1 more") as caught:
        model.fit(**given)
    assert len(caught) == 1


def test_no_image_is_left(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 1)
    for path in (root / "north").rglob("*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="No usable images are left in the domain 'north'"):
        task_from(root / "central", [root / "north", pixels(1)[None]], size=16, skip_bad=True)


def test_domain_types_pass_through() -> None:
    stored = torch.from_numpy(batch(100, side=18)).permute(0, 3, 1, 2).contiguous()
    known = torch.full((20,), -1)
    known[3] = 1
    ready = UnlabeledDomain("north", stored, tuple(f"{number:02d}" for number in range(20)), known)
    small = UnlabeledDomain("small", stored[:, :, :9, :9], ready.ids)
    hidden = LabeledDomain("west", stored.flip(0), torch.tensor(LABELS), ("0", "1"))
    labeled = LabeledDomain("centre", torch.from_numpy(batch(0)).permute(0, 3, 1, 2), torch.tensor(LABELS), ("0", "1"))
    task = task_from(labeled, [small, hidden, ready], size=16)
    assert [domain.name for domain in task.training.unlabeled] == ["small", "west", "north"]
    assert task.training.labeled.name == "centre"
    assert task.training.unlabeled[2] is ready
    assert task.training.unlabeled[0].images.shape == (20, 3, 18, 18) and task.training.unlabeled[0].ids == ready.ids
    assert task.evaluation.audits["west"].known == 20 and task.evaluation.audits["north"].known == 0
    assert set(task.report["domains"]) == {"centre", "west", "small", "north"}
    assert [domain.name for domain in task_from(labeled, [ready], size=16).training.unlabeled] == ["north"]


def test_a_test_folder_may_have_the_name_that_means_no_test_domain(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    (root / "south").rename(root / "none")
    given = catalog_of(root / "central", [root / "north"], root / "none")
    assert given.test == "none (test)" and given.catalog.domains[given.test].entries


def test_names_in_two_unicode_spellings_are_one() -> None:
    ready = UnlabeledDomain(
        unicodedata.normalize("NFD", "Zürich"), torch.zeros((4, 3, 18, 18), dtype=torch.uint8), tuple("abcd")
    )
    task = task_from((batch(0), LABELS), [ready], size=16)
    assert [domain.name for domain in task.training.unlabeled] == ["Zürich"]


def empty(name: str, count: int = 0) -> UnlabeledDomain:
    return UnlabeledDomain(name, torch.zeros((count, 3, 4, 4), dtype=torch.uint8), tuple("a" * count))


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "message"),
    [
        ((batch(0), LABELS[:-1]), [batch(1)], "20 images but 19 labels"),
        (batch(0), [batch(1)], r"pair \(images, labels\)"),
        ((batch(0), LABELS), [(batch(1), LABELS)], "unlabeled domain 1 is a pair: pass its images only"),
        ((batch(0), LABELS), [empty("e")], "no images"),
        ((batch(0), LABELS), [empty("labeled", 1)], "same name"),
    ],
)
def test_wrong_inputs_are_refused(labeled: Any, unlabeled: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_from(labeled, unlabeled, size=16)
