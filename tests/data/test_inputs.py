"""Folders in Python: nothing that is not read goes without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import pixels, three_sites, write_image

from proud.errors import UserError
from proud.data.python_inputs import folder_domain, gather


def test_files_and_links_that_are_not_read_are_told(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root", 1)
    for number in range(10):
        (root / "central" / "cat" / f"{number}.heic").touch()
    (root / "central" / "bird").symlink_to(write_image(tmp_path / "outside" / "a.png", 1).parent)
    expected = r"site: not all files are read \(not: 10 \.heic; .*; 1 link that leaves the folder is .* \(bird\)"
    with pytest.warns(UserWarning, match=expected):
        domain = folder_domain("site", root / "central")
    assert len(domain.entries) == 2
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.heic").touch()
    with pytest.raises(UserError, match=r"no images in .*none \(files: 1 \.heic; read are"):
        folder_domain("none", tmp_path / "none")


@pytest.mark.parametrize("mixed", [False, True])
def test_images_that_are_left_out_are_told(mixed: bool, tmp_path: Path) -> None:
    root = three_sites(tmp_path, 3)
    for number in range(6):
        (root / "north" / "cat" / f"bad{number}.png").write_bytes(b"no picture")
    south = pixels(1)[None] if mixed else root / "south"
    with pytest.raises(UserError, match="6 images cannot be used"):
        gather(root / "central", [root / "north", south], size=16)
    with pytest.warns(UserWarning, match=r"6 unreadable images are left out: .*bad\d\.png.* and 1 more") as told:
        task, _ = gather(root / "central", [root / "north", south], size=16, skip_bad=True)
    assert len(told) == 1 and len(task.training.unlabeled[0]) == 6


def test_no_image_is_left(tmp_path: Path) -> None:
    root = three_sites(tmp_path, 1)
    for path in (root / "north").rglob("*.png"):
        path.write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="2 unreadable"), pytest.raises(UserError, match="'north'"):
        gather(root / "central", [root / "north", pixels(1)[None]], size=16, skip_bad=True)
