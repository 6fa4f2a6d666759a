"""Which domain plays which part, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from trees import site_task, three_sites, write_image, write_tree

from proud.errors import UserError


@pytest.fixture(scope="module")
def with_void(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites, and a folder without images."""
    root = three_sites(tmp_path_factory.mktemp("roles"), 2)
    (root / "void").mkdir()
    return root


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labeled": "centrl"}, "no domain 'centrl'.*Did you mean 'central'.*central, north, south"),
        ({"test": "East"}, "no domain 'East'"),
        ({"unlabeled": ("nort",)}, "Did you mean 'north'"),
        ({"test": "central"}, "both the labeled and the test domain"),
        ({"unlabeled": ("central",)}, "'central' is the labeled domain"),
        ({"unlabeled": ("south", "north")}, "'south' is the test domain"),
        ({"unlabeled": ("north", "north")}, "twice"),
        ({"unlabeled": ("void",)}, "'void' .*has no images"),
        ({"labeled": "void"}, "'void' .*has no images"),
        ({"size": 4}, "--size"),
    ],
)
def test_wrong_roles_are_refused(with_void: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        site_task(with_void, **options)


def test_no_other_domain(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "south": {"cat": 2}})
    assert site_task(tmp_path).training.unlabeled == (), "methods that need one refuse it: `load` in training.run"


def test_classes_that_are_numbers_sort_as_numbers(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"10": 2, "9": 2, "0": 2}, "north": {"x": 1}})
    assert site_task(tmp_path, test="none").training.classes == ("0", "9", "10")


def test_mnist_is_not_mnist_m(tmp_path: Path) -> None:
    counts = {"0": 2, "1": 2}
    write_tree(tmp_path, {"mnist": counts, "mnist_m": counts, "svhn": counts})
    task = site_task(tmp_path, labeled="mnist", test="svhn")
    assert [domain.name for domain in task.training.unlabeled] == ["mnist_m"]


def test_empty_neighbour_folders_are_no_domains(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    (tmp_path / "notes").mkdir()
    with pytest.warns(UserWarning, match="notes has no images and is skipped"):
        task = site_task(tmp_path)
    assert [domain.name for domain in task.training.unlabeled] == ["north"]


def test_no_test_domain_and_named_unlabeled_ones(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    assert [domain.name for domain in site_task(tmp_path, test="none").training.unlabeled] == ["north", "south"]
    task = site_task(tmp_path, test="none", unlabeled=("south",))
    assert [domain.name for domain in task.training.unlabeled] == ["south"] and task.evaluation.test is None


def test_foreign_folders_of_an_unlabeled_domain_are_unknown_to_the_audit(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"dog": 1, "monday": 2}})
    write_image(tmp_path / "north" / "loose.png", 99)
    text = "north has classes that are unknown in the labeled domain central: monday. Their 2 images are trained on"
    with pytest.warns(UserWarning, match=text):
        task = site_task(tmp_path, test="none")
    assert sorted(task.evaluation.audits["north"].labels.tolist()) == [-1, -1, -1, 1]
    assert task.report["domains"]["north"]["audited"] == 1


def test_folders_of_which_none_is_a_class_may_have_any_names(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"monday": 2, "tuesday": 2}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert site_task(tmp_path, test="none").report["domains"]["north"]["audited"] == 0


def test_labeled_images_without_label(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    write_image(tmp_path / "central" / "loose.png", 99)
    with pytest.raises(UserError, match=r"1 of 5 images .* no label: central/loose\.png"):
        site_task(tmp_path)


def test_test_labels_must_be_known(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    write_image(tmp_path / "south" / "loose.png", 99)
    with pytest.raises(UserError, match="test domain 'south' have no label"):
        site_task(tmp_path)
    (tmp_path / "south" / "loose.png").rename(tmp_path / "south" / "cat" / "in.png")
    write_image(tmp_path / "south" / "bird" / "x.png", 98)
    with pytest.raises(UserError, match="labels that the labeled domain 'central' lacks: bird"):
        site_task(tmp_path)


def test_one_class(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2}, "north": {"cat": 2}})
    with pytest.raises(UserError, match="only one class, 'cat'"):
        site_task(tmp_path, test="none")


def test_class_without_images(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    (tmp_path / "central" / "bird").mkdir()
    with pytest.raises(UserError, match="class folder bird of the labeled domain 'central'"):
        site_task(tmp_path)
    assert site_task(tmp_path, labeled="north").training.classes == ("cat", "dog")
