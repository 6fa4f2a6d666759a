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
from proud.data.added import POOL
from proud.data.embedded import embedded_catalog
from proud.errors import UserError
from proud.machine import Stopped
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
