"""Sites beside those of the data: every image of a pool has one part to play."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proud.config import TaskSpec
from proud.data.added import POOL
from proud.data.python_inputs import catalog_of
from proud.data.source import TaskSource, find_task
from proud.errors import UserError
from toy import write_folders


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return write_folders(
        tmp_path_factory.mktemp("data"), {"central": 0, "north": 1, "south": 2, "west": 3}, per_class=2
    )


def find(data: Path, pool: Path, **given: object) -> TaskSource:
    return find_task(TaskSpec(data=str(data), labeled="central", test="west", unlabeled_pool=str(pool), **given))


def unlabeled(source: TaskSource) -> list[str]:
    return [domain.name for domain in source.roles.unlabeled]


def test_images_that_are_labeled_or_tested_on_are_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data / "central")
    for pool, text in [
        (data / "central", "The pool and the labeled domain 'central' have 8 images in common"),
        (tmp_path / "link", "the labeled domain 'central' have 8 images"),
        (next((data / "central").iterdir()), "the labeled domain 'central' have 2 images"),
        (data / "west", "the test domain 'west' have 8 images in common: use another folder as the pool.$"),
        (data, "the labeled domain 'central'"),
    ]:
        with pytest.raises(UserError, match=text):
            find(data, pool)
    shutil.copytree(data / "central", tmp_path / "images")
    rows = [f"{path.relative_to(tmp_path)},central,{path.parent.name}\n" for path in tmp_path.glob("images/*/*")]
    (tmp_path / "data.csv").write_text("path,domain,label\n" + "".join(rows))
    with pytest.raises(UserError, match="the labeled domain 'central' have 8 images"):
        find_task(TaskSpec(data=str(tmp_path / "data.csv"), labeled="central", unlabeled_pool=str(tmp_path / "images")))


def test_a_domain_whose_images_are_all_in_the_pool_is_the_pool(data: Path) -> None:
    assert unlabeled(find(data, data / "north")) == ["south", POOL]
    assert unlabeled(find(data, data / "north", unlabeled=("south",))) == ["south", POOL]


@pytest.mark.filterwarnings("ignore:--add north. the run has this unlabeled site already")
def test_a_domain_that_is_named_or_partly_in_the_pool_is_refused(data: Path, tmp_path: Path) -> None:
    part = next((data / "north").iterdir())
    for pool, given in [
        (data / "north", {"unlabeled": ("north",)}),
        (data / "north", {"add": ("north",)}),
        (part, {}),
    ]:
        with pytest.raises(UserError, match=r"the unlabeled domain 'north' have .* or other unlabeled domains"):
            find(data, pool, **given)
    assert unlabeled(find(data, part, unlabeled=("south",))) == ["south", POOL]
    shutil.copytree(data / "north", tmp_path / "north")
    assert unlabeled(find(data, tmp_path / "north")) == ["north", "south", POOL]
    with pytest.raises(UserError, match=r"the unlabeled domain 'north \(2\)' have 8 images in common"):
        find(data, tmp_path / "north", add=(str(tmp_path / "north"),), unlabeled=("south",))


def test_in_python(data: Path) -> None:
    given = catalog_of(str(data / "central"), None, None, sorted(map(str, data.glob("central/*/*.png"))))
    with pytest.raises(UserError, match="The pool and the labeled domain 'central' have 8 images in common"):
        find_task(TaskSpec(data="python", labeled="central", unlabeled_pool="python"), given.catalog)


def test_more_sites_than_files_allow_are_refused_before_a_file_is_read(data: Path, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.png").write_text("not an image")
    with pytest.raises(UserError, match="--sites 3: 40 images are too few, with at least 16 for each site"):
        find(data, tmp_path, sites="3")
    assert unlabeled(find(data, tmp_path, sites="2")) == ["north", "south", POOL]
