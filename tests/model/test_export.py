"""Exported files answer as the saved model does, without anything of proud."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from proud import files, ops
from proud.cli import main as cli
from proud.config import SQUARES
from proud.data.decode import PixelFormat, decode_all, in_square, stored_side
from proud.errors import UserError
from proud.model.answers import AnswerOptions
from proud.model.export import parity, save
from proud.model.export.deployed import Deployed, Squared, aps_scores
from proud.model.export.save import export_model
from proud.model.load import load_model
from proud.model.predict import Model, predict_files
from proud.nets.models import build_net, model_spec
from proud.trust.conformal import class_scores, prediction_sets
from proud.trust.fitted import fit_trust
from toy import edit_json, write_folders

CLASSES = ("cat", "=dog", "two\nlines", "ünï", "e")
SHAPES = ((1, 45, 61), (3, 130, 40), (2, 36, 36), (1, 7, 90))
DOCS = (Path(__file__).parents[2] / "docs" / "guide" / "deploying.md").read_text(encoding="utf-8")


def save_model(folder: Path, network: str, square: Any = "middle") -> Path:
    """Random weights, a calibration and prototypes."""
    spec = model_spec(network, len(CLASSES), 32, square)
    net, chance = build_net(spec, seed=1), torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as after training
            module.running_var.uniform_(0.5, 2, generator=chance)
            module.running_mean.normal_(generator=chance)
    labels = torch.randint(0, len(CLASSES), (200,), generator=chance)
    logits = torch.nn.functional.one_hot(labels, len(CLASSES)) * 2 + torch.randn((200, 5), generator=chance)
    prototypes = {
        "merged": torch.randn((len(CLASSES), net.num_features), generator=chance),
        "center": torch.randn(net.num_features, generator=chance) / 20,
        "tau": torch.tensor([0.1]),
    }
    config = {"method": "proud", "seed": 3, "labeled": "central"}
    trust = fit_trust(logits, labels)
    assert trust.temperature != 1
    Model(net, spec, CLASSES, config, torch.device("cpu"), trust, prototypes).save(folder)
    return folder


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "resnet", "test_resnet", "pad")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "digits", "digits")


@pytest.fixture(scope="module")
def onnx_file(resnet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "model.onnx"
    found = export_model(resnet, "onnx", out, options=AnswerOptions(sets="aps", coverage=0.8))
    assert (found.images, found.source) == (24, "the built-in set") and found.difference < 1e-5
    return out


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, (*shape, 3), dtype=np.uint8)


@pytest.mark.parametrize("square", SQUARES)
def test_images_are_resized_bit_for_bit_as_pillow_does(square: Any) -> None:
    chance = np.random.default_rng(0)
    for case in range(40):
        height, width = (int(length) for length in chance.integers(1, 300, 2))
        size = (16, 32, 64)[case % 3]
        height = stored_side(size) if case % 5 == 0 else height
        image = noise(height, width if case % 7 else height)
        whole = in_square(Image.fromarray(image), PixelFormat(stored_side(size), square))
        wanted = ops.center_crop(torch.from_numpy(np.array(whole)).permute(2, 0, 1), size)
        found = Squared(size, stored_side(size), square)(torch.from_numpy(image[None]))
        assert torch.equal(found[0], wanted), (height, width, size)


def test_adaptive_scores_without_sorting() -> None:
    probs = torch.tensor([[0.4, 0.1, 0.1, 0.4], [0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]]).double()
    torch.testing.assert_close(aps_scores(probs), class_scores(probs, "aps"))


def test_onnx_answers_as_the_saved_model(onnx_file: Path, resnet: Path) -> None:
    model = load_model(resnet, "cpu")
    session = onnxruntime.InferenceSession(onnx_file)
    names = [output.name for output in session.get_outputs()]
    assert names == ["probabilities", "set", "abstain", "features", "distances"]
    for shape in SHAPES:
        images = noise(*shape)
        found = dict(zip(names, session.run(None, {"images": images}), strict=True))
        features, logits = model.outputs(decode_all(list(images), model.pixels)[0])
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(list(images)), atol=1e-5)
        np.testing.assert_allclose(found["features"], features, rtol=1e-4, atol=1e-4)
        raw = logits.double().softmax(1)
        trust, prototypes = model.trust, model.prototypes
        assert trust is not None and prototypes is not None
        threshold = trust.threshold(0.05)
        np.testing.assert_array_equal(found["set"], prediction_sets(raw, trust.quantile(0.8, "aps"), "aps"))
        assert found["abstain"].tolist() == [threshold is None or sure < threshold for sure in raw.amax(1).tolist()]
        unit = torch.nn.functional.normalize(features, dim=1) - prototypes["center"]
        distances = 1 - torch.nn.functional.cosine_similarity(unit[:, None], prototypes["merged"], dim=2)
        np.testing.assert_allclose(found["distances"], distances, atol=1e-5)


def test_onnx_is_one_valid_file_that_describes_itself(onnx_file: Path, resnet: Path) -> None:
    assert [path.name for path in onnx_file.parent.iterdir()] == ["model.onnx"]
    model = onnx.load(onnx_file)
    onnx.checker.check_model(model, full_check=True)
    (given,) = model.graph.input
    shape = [dim.dim_param or dim.dim_value for dim in given.type.tensor_type.shape.dim]
    assert shape == ["images", "height", "width", 3]
    about = {each.key: each.value for each in model.metadata_props}
    trust = load_model(resnet, "cpu").trust
    assert trust is not None
    assert json.loads(about["classes"]) == list(CLASSES)
    assert (about["size"], about["resized_to"], about["square"]) == ("32", "36", "pad")
    assert float(about["temperature"]) == trust.temperature
    assert float(about["quantile"]) == trust.quantile(0.8, "aps") and about["sets"] == "aps"
    assert (about["method"], about["seed"], about["labeled"]) == ("proud", "3", "central")
    assert len(about["weights_sha256"]) == 64 and "torch" in json.loads(about["versions"])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def test_the_code_in_the_docs_answers_as_predict(
    onnx_file: Path, resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three formats; the JPEG file is large enough to be decoded at a reduced size, and turned by its EXIF tag."""
    monkeypatch.chdir(tmp_path)
    plain = save_model(tmp_path / "plain", "test_resnet")
    smooth = Image.fromarray(noise(9, 12)).resize((700, 500), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth.save("image.jpg", quality=95, exif=exif)
    shutil.copy(onnx_file, "model.onnx")
    assert cli.run(["export", str(resnet), "--format", "torch", "--check", "image.jpg"]) == 0
    assert cli.run(["export", str(plain), "--format", "timm", "--check", "image.jpg"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.count("Checked with 1 images of the given images: the same labels, and probabilities within") == 2
    names: dict[str, Any] = {}
    use_onnx, use_torch, use_timm, reference = blocks("python")
    options = AnswerOptions(probabilities=True)
    (wanted,), _ = predict_files(load_model(resnet, "cpu"), [Path("image.jpg")], options)
    for code in (use_onnx, use_torch):
        exec(code, names)
        np.testing.assert_allclose(names["answers"]["probabilities"][0], wanted["probabilities"], atol=1e-5)
    assert names["label"] == wanted["label"]
    exec(use_timm + reference, names)
    (wanted,), _ = predict_files(load_model(plain, "cpu"), [Path("image.jpg")], options)
    image, about = Image.fromarray(names["pixels"]), names["config"]["proud"]
    with torch.no_grad():
        logits = names["network"](torch.from_numpy(names["network_input"](image, about)[None]))
    np.testing.assert_allclose(logits.softmax(1)[0], wanted["probabilities"], atol=1e-5)
    assert use_timm.strip().count("\n") + 1 <= 6  # five lines, and an empty one


def test_what_timm_cannot_hold_is_refused(digits: Path, tmp_path: Path) -> None:
    why = r"digits cannot be a plain timm network: it is not a network of timm\. Export it with --format onnx or torch"
    with pytest.raises(UserError, match=why):
        export_model(digits, "timm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("difference", [3e-4, 0.3])
def test_a_file_with_other_answers_is_not_kept(
    difference: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(save_model(tmp_path / "model", "digits"), "cpu")
    bent = load_model(tmp_path / "model", "cpu")
    with torch.no_grad():
        bent.net.head.bias[0] += 4 * difference

    def program(images: np.ndarray) -> parity.Answers:
        return {"probabilities": torch.from_numpy(bent.predict_proba(list(images)))}

    monkeypatch.setattr("proud.model.export.save.write_torch", lambda deployed, about, path: path.write_bytes(b"x"))
    monkeypatch.setattr("proud.model.export.save.read_torch", lambda path, deployed: program)
    with pytest.raises(UserError, match="does not answer as the saved model does"):
        export_model(tmp_path / "model", "torch", tmp_path / "model.pt2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert model.trust is not None


def test_sets_and_abstentions_are_compared(digits: Path) -> None:
    model, options = load_model(digits, "cpu"), AnswerOptions(risk=0.3)
    assert model.trust is not None
    logits = torch.tensor([[9.0, 0, 0, 0, 0], [0.1, 0, 0, 0, 0]])
    raw = logits.double().softmax(1)
    right = {
        "set": prediction_sets(raw, model.trust.quantile(0.9)),
        "abstain": raw.amax(1) < (model.trust.threshold(0.3) or 2),
    }
    assert parity.same_decisions(model, options, right, logits)
    for name in ("set", "abstain"):
        assert not parity.same_decisions(model, options, right | {name: ~right[name]}, logits)


def test_a_model_without_calibration_and_prototypes_has_fewer_outputs() -> None:
    spec = model_spec("digits", 2, 16)
    model = Model(build_net(spec, seed=1), spec, ("a", "b"), {}, torch.device("cpu"))
    deployed = Deployed(model, AnswerOptions()).eval()
    assert deployed.names == ("probabilities", "features")
    images = noise(3, 20, 30)
    with torch.no_grad():
        found = deployed(torch.from_numpy(images))[0]
    np.testing.assert_allclose(found, model.predict_proba(list(images)), atol=1e-6)


def test_the_run_s_own_images_are_compared_if_they_are_there(digits: Path, tmp_path: Path) -> None:
    model = load_model(digits, "cpu")
    data = write_folders(tmp_path / "images", {"central": 0, "north": 1}, per_class=2)
    model.config["data"] = str(data)
    images, source = parity.check_images(model, ())
    assert source == str(data) and len(images) == 16
    next(data.rglob("*.png")).write_bytes(b"damaged")
    assert parity.check_images(model, ())[1] == "the built-in set"
    with pytest.raises(UserError, match=r"png cannot be read"):
        parity.check_images(model, [data])


def test_nothing_is_overwritten_silently(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    out.write_text("mine")
    with pytest.raises(UserError, match="exists: choose another --out or add --overwrite"):
        export_model(digits, "onnx", out)
    plain = save_model(tmp_path / "plain", "test_resnet")
    with pytest.raises(UserError, match="has other files"):
        export_model(plain, "timm", tmp_path)
    with pytest.raises(UserError, match="is a file"):
        export_model(plain, "timm", out)
    assert out.read_text() == "mine"


def test_a_killed_timm_export_never_mixes_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder after every step, as a kill would leave it."""
    models = [save_model(tmp_path / "model", "test_resnet"), tmp_path / "other"]
    other = load_model(models[0], "cpu")
    other.net.head.bias.data += 1
    other.save(models[1])
    edit_json(models[1] / "model.json", classes=list("vwxyz"))
    wholes, states, synced = [], [], files.sync_folder
    for number, model in enumerate(models):
        export_model(model, "timm", tmp_path / f"whole-{number}")
        wholes.append({path.name: path.read_bytes() for path in (tmp_path / f"whole-{number}").iterdir()})

    def keep(folder: Path) -> None:
        synced(folder)
        if folder == out:
            states.append(shutil.copytree(out, tmp_path / f"killed-{len(states)}"))

    out = Path(shutil.copytree(tmp_path / "whole-0", tmp_path / "out"))
    monkeypatch.setattr(files, "sync_folder", keep)
    monkeypatch.setattr(save, "sync_folder", keep)
    export_model(models[1], "timm", out, overwrite=True)
    monkeypatch.undo()
    assert len(states) == 3
    for state in states:
        found = {name: (state / name).read_bytes() for name in wholes[0] if (state / name).exists()}
        assert found in wholes or "config.json" not in found
        export_model(models[1], "timm", state, overwrite=True)
        assert {path.name: path.read_bytes() for path in state.iterdir()} == wholes[1]


def test_a_missing_package_is_named(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs the package onnx: pip install 'proud\[export\]'"):
        export_model(digits, "onnx", tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
