"""Images of a task that are found and not yet read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from trees import three_sites, write_image

from proud.config import TaskSpec
from proud.data.source import find_task
from proud.errors import UserError


def test_images_are_found_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from proud.config import TaskSpec; from proud.data.source import find_task; "
        "source = find_task(TaskSpec(data=sys.argv[1], labeled='central', test='south')); "
        "print(source.native_side, *source.roles.classes); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, three_sites(tmp_path, 1)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "12 cat dog\n"), done.stderr


def test_nothing_is_decoded(tmp_path: Path) -> None:
    three_sites(tmp_path, 1)
    write_image(tmp_path / "central" / "cat" / "000.png", 1, height=30, width=40)
    (tmp_path / "central" / "dog" / "000.png").write_bytes(b"torn")
    source = find_task(TaskSpec(data=str(tmp_path), labeled="central"))
    assert source.native_side == 30 and [domain.name for domain in source.roles.unlabeled] == ["north", "south"]


def test_wrong_tables_of_labels_are_reported_before_images_are_found(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file gone\.csv"):
        find_task(TaskSpec(data=str(tmp_path / "nowhere"), labeled="central", labels="gone.csv"))
