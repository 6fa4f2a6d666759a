from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from trees import site_task, three_sites, write_image, write_tree

from proud.data.task import assemble
from proud.data.benchmarks import catalog_for
from proud.data.catalog import scan_csv
from proud.data.reader import Cache
from proud.data.decode import content_hash, decode, decode_all
from proud.errors import UserError


def test_roles_shapes_and_report(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path))
    training, evaluation = task.training, task.evaluation
    assert training.classes == ("cat", "dog") and task.size == 16
    assert training.labeled.images.shape == (18, 3, 18, 18) and training.labeled.name == "central"
    assert [domain.name for domain in training.unlabeled] == ["north"]
    assert training.unlabeled[0].images.shape == (20, 3, 18, 18) and training.unlabeled[0].known is None
    assert evaluation.validation is not None and len(evaluation.validation) == 2
    assert evaluation.test is not None and Counter(evaluation.test.labels.tolist()) == {0: 10, 1: 10}
    report = json.loads(json.dumps(task.report))
    assert report["domains"]["central"] == {
        "role": "labeled",
        "images": 18,
        "validation": 2,
        "per_class": {"cat": 9, "dog": 9},
    }
    assert report["domains"]["north"] == {"role": "unlabeled", "images": 20, "audited": 20}
    assert report["domains"]["south"]["role"] == "test" and report["skipped"] == []


def test_rows_are_ordered_by_content_and_aligned(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path))
    domain, audit = task.training.unlabeled[0], task.evaluation.audits["north"]
    assert list(domain.ids) == sorted(domain.ids)
    for row, (identity, path) in enumerate(zip(domain.ids, audit.paths, strict=True)):
        assert content_hash(tmp_path / path) == identity
        assert torch.equal(decode(tmp_path / path, 18), domain.images[row])
        assert task.training.classes[audit.labels[row]] == Path(path).parent.name


def test_labels_follow_their_images(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path, 4))
    for domain in (task.training.labeled, task.evaluation.validation, task.evaluation.test):
        assert domain is not None
        truth = {
            decode(path, 18).numpy().tobytes(): path.parent.name for path in (tmp_path / domain.name).glob("*/*.png")
        }
        for image, label in zip(domain.images, domain.labels.tolist(), strict=True):
            assert truth[image.numpy().tobytes()] == domain.classes[label]


def test_validation_is_stratified_seeded_and_never_trained_on(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"a": 40, "b": 21, "c": 3, "d": 1}, "north": {"a": 2}})

    def held(seed: int, val: float = 0.1) -> tuple[list[bytes], list[bytes], list[int]]:
        task = site_task(tmp_path, test=None, seed=seed, val=val)
        validation, labeled = task.evaluation.validation, task.training.labeled
        assert validation is not None
        rows = [image.numpy().tobytes() for image in validation.images]
        return rows, [image.numpy().tobytes() for image in labeled.images], validation.labels.tolist()

    rows, trained, labels = held(1)
    assert Counter(labels) == {0: 4, 1: 2, 2: 1}  # the class with one image keeps it for training
    assert not set(rows) & set(trained) and len(rows) + len(trained) == 65
    assert held(1)[0] == rows and held(2)[0] != rows
    assert Counter(held(1, val=0.5)[2]) == {0: 20, 1: 10, 2: 2}
    assert Counter(held(1, val=0.99)[2]) == {0: 39, 1: 20, 2: 2}


def test_no_validation(tmp_path: Path) -> None:
    task = site_task(three_sites(tmp_path), val=0)
    assert task.evaluation.validation is None and len(task.training.labeled) == 20


def test_no_test_domain_and_chosen_unlabeled_ones(tmp_path: Path) -> None:
    three_sites(tmp_path)
    assert [domain.name for domain in site_task(tmp_path, test=None).training.unlabeled] == ["north", "south"]
    task = site_task(tmp_path, test=None, unlabeled=["south"])
    assert [domain.name for domain in task.training.unlabeled] == ["south"] and task.evaluation.test is None


def test_classes_that_are_numbers_sort_as_numbers(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"10": 2, "9": 2, "0": 2}, "north": {"x": 1}})
    assert site_task(tmp_path, test=None).training.classes == ("0", "9", "10")


def test_foreign_folders_of_an_unlabeled_domain_are_unknown_to_the_audit(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"dog": 1, "monday": 2}})
    write_image(tmp_path / "north" / "loose.png", 99)
    text = "north has classes that the labeled domain central does not know: monday. Their 2 images are learned from"
    with pytest.warns(UserWarning, match=text):
        task = site_task(tmp_path, test=None)
    assert sorted(task.evaluation.audits["north"].labels.tolist()) == [-1, -1, -1, 1]
    assert task.report["domains"]["north"]["audited"] == 1


def test_folders_of_which_none_is_a_class_may_have_any_names(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"monday": 2, "tuesday": 2}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert site_task(tmp_path, test=None).report["domains"]["north"]["audited"] == 0


def test_mnist_is_not_mnist_m(tmp_path: Path) -> None:
    counts = {"0": 2, "1": 2}
    write_tree(tmp_path, {"mnist": counts, "mnist_m": counts, "svhn": counts})
    task = site_task(tmp_path, labeled="mnist", test="svhn")
    assert [domain.name for domain in task.training.unlabeled] == ["mnist_m"]


def test_empty_neighbour_folders_are_no_domains(tmp_path: Path) -> None:
    three_sites(tmp_path)
    (tmp_path / "notes").mkdir()
    with pytest.warns(UserWarning, match="notes holds no images and is left out"):
        task = site_task(tmp_path)
    assert [domain.name for domain in task.training.unlabeled] == ["north"]


def test_csv_with_a_shipped_split(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    lines = ["path,domain,label,split"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        split = "val" if path.stem == "003" else "train"
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},{split}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    task = assemble(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", size=16, seed=1)
    assert len(task.training.labeled) == 6 and len(task.training.unlabeled[0]) == 6
    assert task.evaluation.validation is not None and len(task.evaluation.validation) == 2
    assert task.evaluation.test is not None and len(task.evaluation.test) == 8
    without = assemble(scan_csv(tmp_path / "data.csv"), labeled="central", test=None, size=16, seed=1, val=0)
    assert len(without.training.labeled) == 6 and without.evaluation.validation is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labeled": "centrl"}, "no domain 'centrl'.*Did you mean 'central'.*central, north, south"),
        ({"test": "East"}, "no domain 'East'"),
        ({"unlabeled": ["nort"]}, "Did you mean 'north'"),
        ({"test": "central"}, "both the labeled and the test domain"),
        ({"unlabeled": ["central"]}, "'central' is the labeled domain"),
        ({"unlabeled": ["south", "north"]}, "'south' is the test domain"),
        ({"unlabeled": ["north", "north"]}, "twice"),
        ({"unlabeled": []}, "No unlabeled domain is left"),
        ({"unlabeled": ["void"]}, "'void' .*has no images"),
        ({"labeled": "void"}, "'void' .*has no images"),
        ({"val": 1.0}, "--val"),
        ({"val": -0.1}, "--val"),
        ({"size": 4}, "--size"),
    ],
)
def test_wrong_roles_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    three_sites(tmp_path, 2)
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match=message):
        site_task(tmp_path, **options)


def test_no_other_domain(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "south": {"cat": 2}})
    with pytest.raises(UserError, match="No unlabeled domain is left"):
        site_task(tmp_path)


def test_one_class(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2}, "north": {"cat": 2}})
    with pytest.raises(UserError, match="only one class, 'cat'"):
        site_task(tmp_path, test=None)


def test_class_without_images(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    (tmp_path / "central" / "bird").mkdir()
    with pytest.raises(UserError, match="class folder bird of the labeled domain 'central'"):
        site_task(tmp_path)
    assert site_task(tmp_path, labeled="north").training.classes == ("cat", "dog")


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


def test_every_bad_file_of_every_domain_is_in_one_error(tmp_path: Path) -> None:
    three_sites(tmp_path, 3)
    bad = ["central/cat/000.png", "north/dog/001.png", "south/cat/002.png"]
    for path in bad:
        (tmp_path / path).write_bytes(b"\x89PNG broken")
    with pytest.raises(UserError) as caught:
        site_task(tmp_path)
    assert all(path in str(caught.value) for path in bad) and "3 images cannot be used" in str(caught.value)
    task = site_task(tmp_path, skip_bad=True)
    assert sorted(file["path"] for file in task.report["skipped"]) == bad
    assert len(task.training.unlabeled[0]) == len(task.evaluation.audits["north"].paths) == 5


def test_skipping_must_leave_every_class_and_domain(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    for path in (tmp_path / "central" / "dog").glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable training images for dog"):
        site_task(tmp_path, skip_bad=True)
    for path in (tmp_path / "south").glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable images are left in the domain 'south'"):
        site_task(tmp_path, labeled="north", test=None, unlabeled=["south"], skip_bad=True)


def test_a_cache_changes_nothing_but_the_number_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_sites(tmp_path, 4)
    (tmp_path / "north" / "dog" / "001.png").write_bytes(b"")
    sites = ("central", "north", "south")
    pairs = [(labeled, test) for labeled in sites for test in sites if labeled != test]
    plain = [site_task(tmp_path, labeled=labeled, test=test, skip_bad=True) for labeled, test in pairs]
    reads: list[int] = []
    monkeypatch.setattr(
        "proud.data.reader.decode_all", lambda *args, **kw: reads.append(len(args[0])) or decode_all(*args, **kw)
    )
    cache: Cache = {}
    for (labeled, test), before in zip(pairs, plain, strict=True):
        cached = site_task(tmp_path, labeled=labeled, test=test, skip_bad=True, cache=cache)
        assert cached.report == before.report
        one, other = before.training, cached.training
        assert torch.equal(one.labeled.images, other.labeled.images)
        assert torch.equal(one.labeled.labels, other.labeled.labels)
        assert one.unlabeled[0].ids == other.unlabeled[0].ids
        assert torch.equal(one.unlabeled[0].images, other.unlabeled[0].images)
        assert before.evaluation.test is not None and cached.evaluation.test is not None
        assert torch.equal(before.evaluation.test.images, cached.evaluation.test.images)
        assert torch.equal(before.evaluation.test.labels, cached.evaluation.test.labels)
    assert reads == [8, 8, 8]
    with pytest.raises(UserError, match="north/dog/001"):
        site_task(tmp_path, cache=cache)


def test_embedded() -> None:
    task = assemble(catalog_for("embedded"), labeled="pen", test="street", size=32, seed=2022)
    assert len(task.training.labeled) == 360 and task.training.labeled.images.shape[-1] == 36
    assert [domain.name for domain in task.training.unlabeled] == ["texture", "print"]
    assert task.training.classes == tuple("0123456789")
