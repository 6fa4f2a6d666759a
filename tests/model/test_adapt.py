"""The images of one site classified together: better than each alone, whatever their order, and without any change."""

from __future__ import annotations

import csv
import gc
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cli.conftest import train
from proud import ProUD, load
from proud.cli import main as cli
from proud.cli.evaluate import show_trust
from proud.errors import UserError
from proud.model import adapt
from proud.model import reading as pieces
from proud.model.adapt import adapt_site, together, unit_features
from proud.model.answers import AnswerOptions
from proud.model.load import load_model
from proud.model.predict import Model
from proud.model.reading import Reading
from proud.nets.models import build_net, model_spec
from toy import CLASSES, SHORT, toy_images, write_folders


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weak on new looks: trained for a moment on one look, with another one unlabeled."""
    data = write_folders(tmp_path_factory.mktemp("data"), {"central": 0, "north": 1}, per_class=12)
    out = tmp_path_factory.mktemp("run") / "x"
    assert train(data, out, "--epochs", "1", "--pretrain-epochs", "2", "--method", "proud") == 0
    return out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folders(tmp_path_factory.mktemp("new"), {"site": 4}, per_class=20) / "site"


def predict(model: Path, images: Path, out: Path, *more: str) -> list[dict[str, str]]:
    assert cli.run(["predict", str(model), str(images), "--out", str(out), "--device", "cpu", *more]) == 0
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def share_right(rows: list[dict[str, str]], column: str) -> float:
    return float(np.mean([row[column] == Path(row["path"]).parent.name for row in rows]))


def test_predictions_name_both_answers(
    model: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    plain = predict(model, site, tmp_path / "plain.csv")
    rows = predict(model, site, tmp_path / "adapted.csv", "--adapt")
    assert list(rows[0])[:4] == ["path", "label", "plain", "confidence"]
    assert [row["plain"] for row in rows] == [row["label"] for row in plain]
    assert [row["path"] for row in rows] == [row["path"] for row in plain]
    changed = sum(row["plain"] != row["label"] for row in rows)
    assert 0 < changed < 0.5 * len(rows)  # otherwise this test shows nothing
    alone, together = " ".join(capsys.readouterr().out.split()).split("80 images →")[1:]
    assert f"Adapting changed {changed} of 80 labels" in together
    assert "contains the true class for 90 %" in alone and "contains the true class" not in together
    assert "for adapted answers nothing is guaranteed" in together
    assert share_right(rows, "label") > share_right(rows, "plain")
    assert before == {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}


def test_neither_names_nor_order_of_the_files_matter(model: Path, site: Path, tmp_path: Path) -> None:
    files = sorted(site.rglob("*.png"))
    for number, path in enumerate(reversed(files)):
        shutil.copy(path, tmp_path / f"{number:03d}.png")
    first = adapt_site(load_model(model, "cpu"), Reading(files, load_model(model, "cpu").pixels))
    copies = sorted(tmp_path.glob("*.png"))
    again = adapt_site(load_model(model, "cpu"), Reading(copies, load_model(model, "cpu").pixels))
    assert torch.equal(first.logits, again.logits.flip(0)) and torch.equal(first.plain, again.plain.flip(0))


def test_evaluate_measures_the_gain(
    model: Path, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data", str(site.parent), "--domain", "site", "--device", "cpu", "--out", str(tmp_path / "e.json")]
    assert cli.run(["evaluate", str(model), *flags, "--adapt"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"each image alone: \d+ % \(\d+–\d+, n = 80\); adapted: \d+ %", shown)
    found = json.loads((tmp_path / "e.json").read_text())
    rows = predict(model, site, tmp_path / "p.csv", "--adapt")
    assert found["accuracy"] == pytest.approx(share_right(rows, "label"))
    assert found["plain"]["accuracy"] == pytest.approx(share_right(rows, "plain"))
    assert found["plain"]["difference"]["value"] == pytest.approx(found["accuracy"] - found["plain"]["accuracy"])


@pytest.mark.parametrize(("plain", "shown"), [(None, "40.0 % → 10.0 %;"), (object(), "(ECE) 10.0 %;")])
def test_adapted_answers_have_no_uncalibrated_stage(
    plain: object, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = {"temperature": 4.0, "ece_before": 0.4, "ece_after": 0.1, "coverage": 0.9, "set_size": 2.0, "risk": None}
    found: Any = SimpleNamespace(trust=trust | {"calibration": "yes"}, options=AnswerOptions(), plain=plain)
    show_trust(found)
    assert shown in capsys.readouterr().out


def test_in_python(model: Path) -> None:
    images, _ = toy_images(4, 20)
    loaded = load(model, "cpu")
    with pytest.warns(UserWarning, match="Adapting changed .* of 80 labels"):
        table = loaded.predict_table(images, adapt=True)
    with pytest.warns(UserWarning, match="Adapting changed"):
        assert np.array_equal(loaded.predict(images, adapt=True), table["label"])
    assert np.array_equal(loaded.predict(images), table["plain"])
    assert list(table)[:4] == ["row", "label", "plain", "confidence"]
    fitted = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1}).fit(toy_images(0, 6), unlabeled=[toy_images(1, 6)[0]])
    with pytest.warns(UserWarning, match="Adapting"):
        probabilities = fitted.predict_proba(images, adapt=True)
    assert probabilities.shape == (80, 4) and np.allclose(probabilities.sum(1), 1, atol=1e-5)


def test_too_few_images_are_refused_and_nothing_written(model: Path, site: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted(site.rglob("*.png"))[:39]:
        shutil.copy(path, few / f"{path.parent.name}-{path.name}")
    with pytest.raises(UserError, match="at least 10 images per class of one site, 40 in all; there are 39"):
        predict(model, few, tmp_path / "p.csv", "--adapt")
    (few / "broken.png").write_bytes(b"no image")
    with pytest.raises(UserError, match="there are 39"):
        predict(model, few, tmp_path / "p.csv", "--adapt", "--skip-bad")
    assert not (tmp_path / "p.csv").exists()


def test_unreadable_images_are_skipped_or_named(model: Path, site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "copy")
    (copy / "plain" / "broken.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"broken\.png"):
        predict(model, copy, tmp_path / "p.csv", "--adapt")
    assert len(predict(model, copy, tmp_path / "p.csv", "--adapt", "--skip-bad")) == 80
    assert "broken.png" in (tmp_path / "p-left-out.csv").read_text()


def test_a_rare_class_is_not_swamped(model: Path) -> None:
    """1 : 10, as at a site where one class is rare."""
    loaded = load_model(model, "cpu")
    images, labels = toy_images(4, 40)
    kept = np.concatenate([np.flatnonzero(labels == name)[: 4 if name == "plain" else 40] for name in CLASSES])
    found = adapt_site(loaded, Reading(list(images[kept]), loaded.pixels))
    truth = torch.tensor([CLASSES.index(name) for name in labels[kept]])
    plain, adapted = ((logits.argmax(1) == truth).float().mean().item() for logits in (found.plain, found.logits))
    assert adapted >= plain - 0.01


def test_strong_disagreement_keeps_the_plain_answers(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(model, "cpu")
    reading = Reading(list(toy_images(4, 10)[0]), loaded.pixels)
    monkeypatch.setattr(adapt, "together", lambda model, features, logits: logits.roll(1, 1))
    found = adapt_site(loaded, reading)
    assert found.kept_plain and torch.equal(found.logits, found.plain) and found.changed == 0
    assert "The plain answers are given" in found.notice


def test_models_without_prototypes_start_from_the_classifier(tmp_path: Path) -> None:
    settings = SHORT | {"method": "erm", "pretrain_epochs": 2, "epochs": 1}
    fitted = ProUD(**settings).fit(toy_images(0, 8), unlabeled=[toy_images(1, 2)[0]])
    assert fitted.model_.prototypes is None
    images, _ = toy_images(4, 10)
    features, logits = fitted.model_.outputs(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())
    found = together(fitted.model_, unit_features(features), logits)
    assert found.shape == logits.shape and found.isfinite().all()


def test_several_sites_in_one_folder_are_noticed(model: Path, site: Path, tmp_path: Path) -> None:
    loaded = load_model(model, "cpu")
    names = ("east", "west")
    for name in names:
        shutil.copytree(site, tmp_path / name)
    with pytest.warns(UserWarning, match="Each of the folders east, west holds folders of classes"):
        adapt_site(loaded, Reading(sorted(tmp_path.rglob("*.png")), loaded.pixels))
    patients = [Path("/a/scans") / f"patient-{number}" / f"{number}.png" for number in range(4)]
    for one_site in (sorted((tmp_path / "east").rglob("*.png")), patients, [Path("a.png")], [np.zeros((4, 4, 3))]):
        assert not adapt.several_sites(one_site, loaded.classes)


# ---- networks with batch norm


def batch_norm_model() -> Model:
    spec = model_spec("resnet10t", 3, 32)
    return Model(build_net(spec, seed=1), spec, ("a", "b", "c"), {}, torch.device("cpu"))


def test_a_site_of_a_batch_norm_network_is_adapted_in_any_order(tmp_path: Path) -> None:
    model = batch_norm_model()
    random = np.random.default_rng(0)
    for number in range(30):
        Image.fromarray(random.integers(0, 255, (36, 36, 3), dtype=np.uint8)).save(tmp_path / f"{number:02d}.png")
    files = sorted(tmp_path.glob("*.png"))
    one = adapt_site(model, Reading(files, model.pixels))
    other = adapt_site(model, Reading(files[::-1], model.pixels))
    assert torch.equal(one.logits, other.logits.flip(0))
    assert one.rows == other.rows == list(range(30))


def test_of_many_images_no_wide_features_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = batch_norm_model()
    monkeypatch.setattr(pieces, "PIECE", 10)
    width = model.net.head.weight.shape[1]
    kept = {torch.float16: 0, torch.float32: 0}
    plainly = adapt.together

    def spied(model: Model, features: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        for each in gc.get_objects():
            if type(each) is torch.Tensor and each.shape[1:] == (width,):
                kept[each.dtype] += len(each)
        return plainly(model, features, logits)

    monkeypatch.setattr(adapt, "together", spied)
    random = np.random.default_rng(0)
    adapt_site(model, Reading(list(random.integers(0, 255, (60, 36, 36, 3), dtype=np.uint8)), model.pixels))
    assert kept[torch.float16] == 60 and kept[torch.float32] < 60  # of all of them; of the last piece alone
