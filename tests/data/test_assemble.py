from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from trees import three_sites, write_image, write_tree

from proud.data.assemble import Cache, assemble, split_labeled
from proud.data.benchmarks import catalog_for
from proud.data.catalog import Entry, scan_csv, scan_folder
from proud.data.copies import Row
from proud.data.domain import Task
from proud.data.store import content_hash, decode, decode_all
from proud.errors import UserError


def copy(path: Path, to: Path) -> None:
    to.write_bytes(path.read_bytes())


def task_of(root: Path, **options: Any) -> Task:
    settings: dict[str, Any] = {"labeled": "central", "test": "south", "size": 16, "seed": 7} | options
    return assemble(scan_folder(root), **settings)


def test_roles_shapes_and_report(tmp_path: Path) -> None:
    task = task_of(three_sites(tmp_path))
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
    task = task_of(three_sites(tmp_path))
    domain, audit = task.training.unlabeled[0], task.evaluation.audits["north"]
    assert list(domain.ids) == sorted(domain.ids)
    for row, (identity, path) in enumerate(zip(domain.ids, audit.paths, strict=True)):
        assert content_hash(tmp_path / path) == identity
        assert torch.equal(decode(tmp_path / path, 18), domain.images[row])
        assert task.training.classes[audit.labels[row]] == Path(path).parent.name


def test_labels_follow_their_images(tmp_path: Path) -> None:
    task = task_of(three_sites(tmp_path, 4))
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
        task = task_of(tmp_path, test=None, seed=seed, val=val)
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
    task = task_of(three_sites(tmp_path), val=0)
    assert task.evaluation.validation is None and len(task.training.labeled) == 20


def test_no_test_domain_and_chosen_unlabeled_ones(tmp_path: Path) -> None:
    three_sites(tmp_path)
    assert [domain.name for domain in task_of(tmp_path, test=None).training.unlabeled] == ["north", "south"]
    task = task_of(tmp_path, test=None, unlabeled=["south"])
    assert [domain.name for domain in task.training.unlabeled] == ["south"] and task.evaluation.test is None


def test_classes_that_are_numbers_sort_as_numbers(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"10": 2, "9": 2, "0": 2}, "north": {"x": 1}})
    assert task_of(tmp_path, test=None).training.classes == ("0", "9", "10")


def test_foreign_folders_of_an_unlabeled_domain_are_unknown_to_the_audit(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"dog": 1, "monday": 2}})
    write_image(tmp_path / "north" / "loose.png", 99)
    text = "north has classes that the labeled domain central does not know: monday. Their 2 images are learned from"
    with pytest.warns(UserWarning, match=text):
        task = task_of(tmp_path, test=None)
    assert sorted(task.evaluation.audits["north"].labels.tolist()) == [-1, -1, -1, 1]
    assert task.report["domains"]["north"]["audited"] == 1


def test_folders_of_which_none_is_a_class_may_have_any_names(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "north": {"monday": 2, "tuesday": 2}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert task_of(tmp_path, test=None).report["domains"]["north"]["audited"] == 0


def test_mnist_is_not_mnist_m(tmp_path: Path) -> None:
    counts = {"0": 2, "1": 2}
    write_tree(tmp_path, {"mnist": counts, "mnist_m": counts, "svhn": counts})
    task = task_of(tmp_path, labeled="mnist", test="svhn")
    assert [domain.name for domain in task.training.unlabeled] == ["mnist_m"]


def test_empty_neighbour_folders_are_no_domains(tmp_path: Path) -> None:
    three_sites(tmp_path)
    (tmp_path / "notes").mkdir()
    with pytest.warns(UserWarning, match="notes holds no images and is left out"):
        task = task_of(tmp_path)
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


def test_copies_across_a_shipped_split_are_told(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "cat" / "003.png")
    lines = ["path,domain,label,split"]
    for path in sorted(tmp_path.glob("*/*/*.png")):
        site, label = path.parts[-3:-1]
        lines.append(f"{path.relative_to(tmp_path)},{site},{label},{'val' if path.stem == '003' else 'train'}")
    (tmp_path / "data.csv").write_text("\n".join(lines))
    told = r"1 of the 2 validation images of central is also trained on, such as central/cat/003\.png"
    with pytest.warns(UserWarning, match=told):
        assemble(scan_csv(tmp_path / "data.csv"), labeled="central", test="south", size=16, seed=1)


def test_images_of_the_test_domain_that_were_trained_on_are_counted(tmp_path: Path) -> None:
    three_sites(tmp_path)
    copy(tmp_path / "north" / "dog" / "000.png", tmp_path / "south" / "cat" / "copy.png")
    alone = r"1 of the 21 images of south is also learned from: its accuracy is not that of unseen data alone\."
    with pytest.warns(UserWarning, match=alone):
        assert task_of(tmp_path).report["test_images_also_in_training"] == 1
    for path in (tmp_path / "south").rglob("0*.png"):
        copy(tmp_path / "north" / path.relative_to(tmp_path / "south"), path)
    little = r"21 of the 21 images of south are also learned from: its accuracy says little about unseen data\."
    with pytest.warns(UserWarning, match=little) as told:
        catalog = scan_folder(tmp_path)
        for seed in (1, 2):
            assemble(catalog, labeled="central", test="south", size=16, seed=seed)
    assert len(told) == 1


def test_files_that_cannot_be_read_are_copies_of_nothing(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    for path in ("central/cat/000.png", "central/dog/000.png", "north/dog/000.png", "south/cat/000.png"):
        (tmp_path / path).write_bytes(b"")
    assert task_of(tmp_path, skip_bad=True).report["test_images_also_in_training"] == 0


def test_copies_are_on_one_side_of_the_split(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"a": 10, "b": 4}, "north": {"a": 2}})
    for path in sorted((tmp_path / "central").rglob("*.png")):
        for number in range(2):
            copy(path, path.with_name(f"{path.stem}-{number}.png"))
    for seed in range(10):
        task = task_of(tmp_path, test=None, seed=seed, val=0.2)
        validation = task.evaluation.validation
        assert validation is not None and Counter(validation.labels.tolist()) == {0: 6, 1: 3}
        held, trained = (
            {image.numpy().tobytes() for image in domain.images} for domain in (validation, task.training.labeled)
        )
        assert not held & trained and len(held) == 3 and len(trained) == 11


def test_without_copies_the_split_is_as_it_always_was() -> None:
    """Published results depend on these draws."""
    entries = [Entry(f"{number}.png", "ab"[number % 3 == 0]) for number in range(40)]
    rows = [Row(f"{number:064x}", entry) for number, entry in enumerate(entries)]
    train, held = split_labeled(rows, 0.2, 2022, ships_split=False)
    assert [int(row.content, 16) for row in held] == [2, 3, 5, 17, 21, 31, 33, 34]
    assert [row for row in rows if row not in held] == train


def test_an_image_under_two_classes_is_told_and_trained_on(tmp_path: Path) -> None:
    three_sites(tmp_path, 4)
    copy(tmp_path / "central" / "cat" / "000.png", tmp_path / "central" / "dog" / "same.png")
    text = (
        r"1 image of central is there under more than one class, such as central/cat/000\.png \(cat\) and "
        r"central/dog/same\.png \(dog\)"
    )
    twice = decode(tmp_path / "central" / "cat" / "000.png", 18)
    for seed in range(5):
        with pytest.warns(UserWarning, match=text):
            labeled = task_of(tmp_path, seed=seed, val=0.5).training.labeled
        assert sum(torch.equal(image, twice) for image in labeled.images) == 2


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
        task_of(tmp_path, **options)


def test_no_other_domain(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2, "dog": 2}, "south": {"cat": 2}})
    with pytest.raises(UserError, match="No unlabeled domain is left"):
        task_of(tmp_path)


def test_one_class(tmp_path: Path) -> None:
    write_tree(tmp_path, {"central": {"cat": 2}, "north": {"cat": 2}})
    with pytest.raises(UserError, match="only one class, 'cat'"):
        task_of(tmp_path, test=None)


def test_class_without_images(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    (tmp_path / "central" / "bird").mkdir()
    with pytest.raises(UserError, match="class folder bird of the labeled domain 'central'"):
        task_of(tmp_path)
    assert task_of(tmp_path, labeled="north").training.classes == ("cat", "dog")


def test_labeled_images_without_label(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    write_image(tmp_path / "central" / "loose.png", 99)
    with pytest.raises(UserError, match=r"1 of 5 images .* no label: central/loose\.png"):
        task_of(tmp_path)


def test_test_labels_must_be_known(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    write_image(tmp_path / "south" / "loose.png", 99)
    with pytest.raises(UserError, match="test domain 'south' have no label"):
        task_of(tmp_path)
    (tmp_path / "south" / "loose.png").rename(tmp_path / "south" / "cat" / "in.png")
    write_image(tmp_path / "south" / "bird" / "x.png", 98)
    with pytest.raises(UserError, match="labels that the labeled domain 'central' lacks: bird"):
        task_of(tmp_path)


def test_every_bad_file_of_every_domain_is_in_one_error(tmp_path: Path) -> None:
    three_sites(tmp_path, 3)
    bad = ["central/cat/000.png", "north/dog/001.png", "south/cat/002.png"]
    for path in bad:
        (tmp_path / path).write_bytes(b"\x89PNG broken")
    with pytest.raises(UserError) as caught:
        task_of(tmp_path)
    assert all(path in str(caught.value) for path in bad) and "3 images cannot be used" in str(caught.value)
    task = task_of(tmp_path, skip_bad=True)
    assert sorted(file["path"] for file in task.report["skipped"]) == bad
    assert len(task.training.unlabeled[0]) == len(task.evaluation.audits["north"].paths) == 5


def test_skipping_must_leave_every_class_and_domain(tmp_path: Path) -> None:
    three_sites(tmp_path, 2)
    for path in (tmp_path / "central" / "dog").glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable training images for dog"):
        task_of(tmp_path, skip_bad=True)
    for path in (tmp_path / "south").glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="No usable images are left in the domain 'south'"):
        task_of(tmp_path, labeled="north", test=None, unlabeled=["south"], skip_bad=True)


def test_a_cache_changes_nothing_but_the_number_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_sites(tmp_path, 4)
    (tmp_path / "north" / "dog" / "001.png").write_bytes(b"")
    sites = ("central", "north", "south")
    pairs = [(labeled, test) for labeled in sites for test in sites if labeled != test]
    plain = [task_of(tmp_path, labeled=labeled, test=test, skip_bad=True) for labeled, test in pairs]
    reads: list[int] = []
    monkeypatch.setattr(
        "proud.data.assemble.decode_all", lambda *args, **kw: reads.append(len(args[0])) or decode_all(*args, **kw)
    )
    cache: Cache = {}
    for (labeled, test), before in zip(pairs, plain, strict=True):
        cached = task_of(tmp_path, labeled=labeled, test=test, skip_bad=True, cache=cache)
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
        task_of(tmp_path, cache=cache)


def test_embedded() -> None:
    task = assemble(catalog_for("embedded"), labeled="pen", test="street", size=32, seed=2022)
    assert len(task.training.labeled) == 360 and task.training.labeled.images.shape[-1] == 36
    assert [domain.name for domain in task.training.unlabeled] == ["texture", "print"]
    assert task.training.classes == tuple("0123456789")


def test_a_site_of_files_that_are_not_read_does_not_vanish_silently(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    (root / "east").mkdir()
    for place in range(12):
        (root / "east" / f"{place}.dcm").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"east holds no images and is left out \(files: 12 \.dcm; read are \.bmp"):
        task_of(root)
    for place in range(12):
        (root / "north" / f"{place}.dcm").write_bytes(b"DICM")
    with pytest.warns(UserWarning, match=r"north: not all files are read \(not: 12 \.dcm"):
        task_of(root, unlabeled=["north"])


def test_links_that_leave_the_folder_are_told_once(tmp_path: Path) -> None:
    root = three_sites(tmp_path / "root")
    outside = three_sites(tmp_path / "outside")
    (root / "east").symlink_to(outside / "north")
    (root / "north" / "bird").symlink_to(outside / "north" / "cat")

    def told(**options: Any) -> list[str]:
        catalog = scan_folder(root)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for seed in (1, 2):
                assemble(catalog, labeled="central", test="south", size=16, seed=seed, **options)
        return [str(warning.message) for warning in caught]

    links = "north: 1 link that leaves the folder is not followed (north/bird)"
    assert told() == [links, "east is a link that leaves the folder and is not followed"]
    assert told(unlabeled=["north"]) == [links]
    with pytest.raises(UserError, match=r"'east' .* east is a link that leaves the folder"):
        task_of(root, unlabeled=["north", "east"])


def test_a_few_other_files_are_no_news(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    (root / "notes").mkdir()
    (root / "notes" / "read me.txt").write_text("hello")
    for place in range(20):
        (root / "north" / f"{place}.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task_of(root)


def test_images_without_light_are_told(tmp_path: Path) -> None:
    root = three_sites(tmp_path)
    for path in (root / "north").rglob("*.png"):
        deep = np.asarray(Image.open(path).convert("L")).astype(np.uint16) * 16  # 12 bits in 16
        Image.fromarray(deep).save(path)
    with pytest.warns(UserWarning, match=r"images of north are nearly black: no value above \d+ of 255"):
        task_of(root)
