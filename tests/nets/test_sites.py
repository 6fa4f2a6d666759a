"""Images of unknown origin are grouped into the sites they come from, by their style."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proud import ProUD
from proud.cli import main as cli
from proud.data import cache
from proud.data.added import POOL
from proud.data.embedded import embedded_catalog
from proud.data.types import Task, UnlabeledDomain
from proud.errors import UserError
from proud.files import write_table
from proud.machine import Stopped
from proud.model.survey import survey
from proud.nets import sites
from proud.nets.models import build_net, model_spec
from proud.nets.sites import group, styles
from proud.training import loop


def digits(domain: str, count: int) -> tuple[np.ndarray, list[str]]:
    """Images of the built-in set, and their classes."""
    found = embedded_catalog().domains[domain]
    rows = np.linspace(0, len(found.entries) - 1, count).astype(int).tolist()  # they are sorted by class
    return np.asarray(found.pixels)[rows], [str(found.entries[row].label) for row in rows]


def write_digits(folder: Path, domain: str, count: int, by_class: bool) -> None:
    for row, (image, label) in enumerate(zip(*digits(domain, count), strict=True)):
        path = folder / label / f"{row}.png" if by_class else folder / f"{domain}-{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two domains in one folder; a file's name tells its domain, and nothing uses it."""
    root = tmp_path_factory.mktemp("pool")
    write_digits(root, "texture", 64, by_class=False)
    write_digits(root, "print", 48, by_class=False)
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_digits(root / "central", "pen", 60, by_class=True)
    return root


def train_on(data: Path, pool: Path, out: Path, *more: str) -> int:
    short = (
        "--epochs",
        "1",
        "--pretrain-epochs",
        "1",
        "--batch-size",
        "32",
        "--size",
        "16",
        "--device",
        "cpu",
        "--threads",
        "1",
    )
    where = ("--data", str(data), "--labeled", "central", "--unlabeled-pool", str(pool), "--out", str(out))
    return cli.run(["train", *where, "--quiet", "--method", "proud", *short, *more])


@pytest.fixture(scope="module")
def run(data: Path, pool: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "x"
    assert train_on(data, pool, out) == 0
    return out


def described(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())["task"]


def purity(rows: list[dict[str, str]]) -> float:
    """Share of the images in the site that has most of their domain."""
    pairs = Counter((row["domain"], Path(row["path"]).name.split("-")[0]) for row in rows)
    return sum(max(pairs[site, domain] for site in ("site 1", "site 2")) for domain in ("texture", "print")) / len(rows)


def vectors(*domains: str) -> np.ndarray:
    images = np.concatenate([digits(domain, 60)[0] for domain in domains])
    spec = model_spec("digits", 10, 32)
    return styles(build_net(spec), torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), spec)


def test_sites_are_found_and_named(run: Path) -> None:
    about = described(run)
    found = {name: each for name, each in about["domains"].items() if each.get("found")}
    assert list(found) == ["site 1", "site 2"] and POOL not in about["domains"]
    sizes = [each["images"] for each in found.values()]
    assert sizes[0] > sizes[1] and sum(sizes) == 112
    assert about["pool"]["images"] == 112 and about["pool"]["sites"] == 2 and about["pool"]["separation"] > 0.25
    with (run / "pseudo_labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 112 and purity(rows) > 0.95
    assert all(len(each["examples"]) == 3 for each in found.values())


def stopped(self: loop.Loop) -> None:
    raise Stopped


def test_the_same_images_give_the_same_sites(
    run: Path, data: Path, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`label-next` and a resumed run find them again."""
    table = tmp_path / "extra.csv"
    assert cli.run(["label-next", str(run), "--k", "3", "--out", str(table), "--device", "cpu"]) == 0
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (run / "pseudo_labels.csv").open(newline="") as file:
        trained_on = {row["path"]: row["domain"] for row in csv.DictReader(file)}
    assert len(rows) == 6 and all(trained_on[row["path"]] == row["domain"] for row in rows)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "run", stopped)
        assert train_on(data, pool, tmp_path / "parts") == 130
    assert train_on(data, pool, tmp_path / "parts", "--resume") == 0
    assert described(tmp_path / "parts")["domains"] == described(run)["domains"]
    with table.open("w") as file:
        file.write(f"path,domain,label,content\n{rows[0]['path']},{rows[0]['domain']},7,{rows[0]['content']}\n")
    assert train_on(data, pool, tmp_path / "labeled", "--labels", str(table)) == 0
    assert described(tmp_path / "labeled")["domains"]["site 1"]["known"] == 1


def test_the_number_may_be_given(pool: Path, data: Path, tmp_path: Path) -> None:
    assert train_on(data, pool, tmp_path / "x", "--sites", "1") == 0
    assert described(tmp_path / "x")["domains"]["site 1"]["images"] == 112


def test_one_look_is_one_site_and_two_are_two() -> None:
    labels, separation = group(vectors("texture"), "auto", 0)
    assert set(labels) == {0} and separation is None
    both = vectors("texture", "print")
    labels, separation = group(both, "auto", 0)
    assert separation is not None and separation > 0.25
    assert abs(labels[:60].mean() - labels[60:].mean()) > 0.9 and len(set(labels)) == 2
    shuffled = np.random.default_rng(0).permutation(120)
    same = (group(both[shuffled], "auto", 0)[0] == labels[shuffled]).mean()
    assert max(same, 1 - same) > 0.95  # equal sizes may exchange the numbers


def test_no_site_is_too_small() -> None:
    """A few odd images are no site, and those that have none belong to the site that is most like them."""
    random = np.random.default_rng(0)
    odd = random.normal(size=(112, 24))
    odd[:2] += 30
    odd[2:5] -= 20
    for asked, found in (("2", 2), ("3", 3), ("6", 5)):
        labels, separation = group(odd, asked, 0)
        sizes = np.bincount(labels)
        assert len(sizes) == found and sizes.min() >= 16 and (np.diff(sizes) <= 0).all()
        assert separation is not None and -1 <= separation <= 1
    # k-means has groups of 20 and 80; the mixture, one of a single image
    random = np.random.default_rng(0)
    random.normal(size=(112, 24))
    random.normal(size=(200, 24))
    spread = random.normal(size=(100, 24))
    spread[:20] = spread[:20] * 0.3 + 2
    spread[20:24] *= 6
    assert np.bincount(group(spread, "auto", 0)[0]).min() >= 16
    small = np.concatenate([random.normal(size=(32, 4)), random.normal(size=(8, 4)) + 50])
    labels, separation = group(small, "2", 0)
    assert len(labels) == 40 and np.bincount(labels).min() >= 16


def test_fewer_sites_than_asked_for_are_a_warning(
    data: Path, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "group", lambda vectors, asked, seed: (np.arange(len(vectors)) % 2, 0.3))
    with pytest.warns(UserWarning, match="--sites 3: the pool has only 2 sites of at least 16 images"):
        assert train_on(data, pool, tmp_path / "x", "--sites", "3") == 0
    assert described(tmp_path / "x")["pool"]["sites"] == 2


def test_the_sites_are_shown_before_training_and_once(
    data: Path, pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_on(data, pool, tmp_path / "x", "--no-quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    about = [row for row, line in enumerate(lines) if "images of the pool, for example" in line]
    assert len(about) == 2 and about[1] < next(row for row, line in enumerate(lines) if "pretrain 1/1" in line)
    assert lines[about[0]].startswith("site 1: ") and str(pool) in lines[about[0]]


def test_a_project_that_was_moved_is_resumed(
    data: Path, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(data, project / "data")
    shutil.copytree(pool, project / "pool")
    monkeypatch.chdir(project)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "run", stopped)
        assert train_on(Path("data"), Path("pool"), Path("x")) == 130
    project.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    one = Path("pool", "texture-0.png").rename(tmp_path / "one.png")
    with pytest.raises(UserError, match="The images differ"):
        train_on(Path("data"), Path("pool"), Path("x"), "--resume")
    one.rename(Path("pool", "texture-0.png"))
    assert train_on(Path("data"), Path("pool"), Path("x"), "--resume") == 0


def test_a_pool_on_disk_is_not_copied_into_memory(
    data: Path, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "COPIED_BYTES", 0)
    seen: list[UnlabeledDomain] = []
    real = sites.divide

    def divide(task: Task, images: UnlabeledDomain, groups: np.ndarray, folder: Path | None) -> Task:
        found = real(task, images, groups, folder)
        seen[:] = [images, *found.training.unlabeled]
        return found

    monkeypatch.setattr(sites, "divide", divide)
    for number in ("1", "2"):
        disk = tmp_path / "cache"
        assert train_on(data, pool, tmp_path / number, "--sites", number, "--cache", str(disk)) == 0
        assert [each.images.shape[0] for each in seen[1:]] == ([112] if number == "1" else [64, 48])
        maps = Path("/proc/self/maps").read_text().splitlines()
        starts = [int(line.partition("-")[0], 16) for line in maps if str(disk) in line]
        assert all(each.images.data_ptr() in starts for each in seen)
        assert all(torch.equal(seen[0].images[seen[0].ids.index(site.ids[0])], site.images[0]) for site in seen[1:])


def test_labels_find_their_images_wherever_these_went(run: Path, data: Path, pool: Path, tmp_path: Path) -> None:
    """A site's name in a table is that of another seed, number or page."""
    with (run / "sites.csv").open(newline="") as file:
        site_of = {row["content"]: row["site"] for row in csv.DictReader(file)}
    contents = list(site_of)
    assert len(contents) == 112 and set(site_of.values()) == {"site 1", "site 2"}
    table = tmp_path / "labels.csv"
    names = ["site 2" if site_of[contents[0]] == "site 1" else "site 1", "site 7", POOL, "north"]
    rows = [[content, "", name, "3"] for content, name in zip(contents[::30], names, strict=True)]
    rows.append([rows[0][0], "", POOL, "3"])  # the same again, from another run
    path = next(pool.glob("print-*.png"))
    rows.append(["", str(path), POOL, "4"])
    write_table(table, ["content", "path", "domain", "label"], rows)
    assert train_on(data, pool, tmp_path / "x", "--labels", str(table)) == 0
    domains = described(tmp_path / "x")["domains"]
    assert sum(each.get("known", 0) for each in domains.values()) == 5
    for name, wrong in [(POOL, "is not in this run"), ("central", "is the labeled domain")]:
        write_table(table, ["content", "path", "domain", "label"], [["0" * 64, "", name, "3"]])
        with pytest.raises(UserError, match=f"line 2: '{name}' {wrong}"):
            train_on(data, pool, tmp_path / "y", "--labels", str(table))


def test_review_shows_the_sites_that_were_found(run: Path, pool: Path, tmp_path: Path) -> None:
    atlas = survey(run, cache=tmp_path, device="cpu")
    found = described(run)["domains"]
    shown = [site for site in atlas.sites if not site.labeled]
    assert [(site.name, site.stop - site.start) for site in shown] == [
        (name, found[name]["images"]) for name in ("site 1", "site 2")
    ]
    assert all(site.verdict and site.in_run for site in shown)
    # an earlier version stored no sites
    other = shutil.copytree(run, tmp_path / "other")
    (other / "sites.csv").unlink()
    (other / "manifest.json").unlink()
    atlas = survey(other, cache=tmp_path, device="cpu")
    assert [site.name for site in atlas.sites] == [POOL, "central"]
    assert any("The pool is shown as one site" in text for text in atlas.notices)


def test_the_test_domain_is_never_among_the_images_to_label(data: Path, pool: Path, tmp_path: Path) -> None:
    """The pool is the only unlabeled site."""
    both = shutil.copytree(data, tmp_path / "data")
    write_digits(both / "west", "street", 20, by_class=True)
    assert train_on(both, pool, tmp_path / "x", "--test", "west") == 0
    assert cli.run(["label-next", str(tmp_path / "x"), "--k", "1", "--out", str(tmp_path / "next.csv")]) == 0
    with (tmp_path / "next.csv").open(newline="") as file:
        assert [row["domain"] for row in csv.DictReader(file)] == ["site 1", "site 2"]


def test_in_python() -> None:
    images = np.concatenate([digits("texture", 40)[0], digits("print", 40)[0]])
    settings = {"method": "proud", "epochs": 1, "pretrain_epochs": 1, "batch_size": 32, "size": 16, "device": "cpu"}
    model = ProUD(**settings).fit(labeled=digits("pen", 40), pool=images)
    shares = [(each["row"] < 40).mean() for each in model.pseudo_labels_.values()]
    assert sorted(model.pseudo_labels_) == ["site 1", "site 2"] and abs(shares[0] - shares[1]) > 0.9
    both = ProUD(**settings).fit(digits("pen", 40), unlabeled=[digits("street", 20)[0]], pool=images, sites=1)
    assert list(both.pseudo_labels_) == ["unlabeled 1", "site 1"]


def test_bad_settings_are_refused_and_nothing_written(pool: Path, data: Path, tmp_path: Path) -> None:
    for folder, flags, text in [
        (pool, ["--unlabeled-pool", "", "--sites", "2"], "name it with --unlabeled-pool"),
        (pool, ["--sites", "many"], "--sites must be `auto` or a number from 1 to 20"),
        (pool, ["--sites", "9"], "--sites 9: 112 images are too few"),
        (tmp_path / "none", [], "--unlabeled-pool .*: no such folder"),
    ]:
        with pytest.raises(UserError, match=text):
            train_on(data, folder, tmp_path / "x", *flags)
    shutil.copytree(data, tmp_path / "data")
    shutil.copytree(data / "central", tmp_path / "data" / POOL)
    with pytest.raises(UserError, match="The data has a domain 'pool'"):
        train_on(tmp_path / "data", pool, tmp_path / "x")
    assert not (tmp_path / "x").exists()
