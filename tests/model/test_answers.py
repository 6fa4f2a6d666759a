"""What predictions contain besides the class; models without calibration and prototypes still work."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from proud.config import Options
from proud.errors import UserError
from proud.model.answers import AnswerOptions, answers, guarantee
from proud.model.load import load_model
from proud.model.predict import Model, predict_files
from proud.nets.models import build_net, model_spec
from proud.stored import TrustRecord
from proud.training.run import train
from proud.trust.calibration import probabilities
from proud.trust.fitted import RISKS, Trust, fit_trust, read_trust
from proud.typed import as_record, parse_record
from toy import SIDE, edit_json, restamp, task_from, toy_images, toy_run, toy_settings, toy_task


def trained(method: str, folder: Path) -> Path:
    task = toy_task(unlabeled=1, per_class=30)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu")
    train(toy_run(method, task, val=0.3), toy_settings(method, epochs=1, pretrain_epochs=2), options, data=task)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("proud", tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def plus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("proud-plus", tmp_path_factory.mktemp("plus"))


def pixels(model: Model, count: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    side = model.pixels.side
    return torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)


@pytest.mark.parametrize("name", ["run", "plus"])
def test_columns_equal_the_slow_version(name: str, request: pytest.FixtureRequest) -> None:
    model = load_model(request.getfixturevalue(name), "cpu")
    assert model.trust is not None and model.prototypes is not None
    model.trust = replace(model.trust, temperature=1.7)
    images = pixels(model)
    logits = model.logits(images)
    raw = probabilities(logits).numpy()
    options = AnswerOptions(coverage=0.8, risk=0.2)
    threshold = model.trust.threshold(0.2)
    for row, answer in enumerate(answers(model, images, options)):
        best = raw[row].argmax()
        assert answer["label"] == model.classes[best]
        scaled = np.exp(logits[row].double().numpy() / model.trust.temperature)
        assert answer["confidence"] == pytest.approx(scaled.max() / scaled.sum(), abs=1e-5)
        inside = [k for k in range(4) if 1 - raw[row, k] <= model.trust.quantile(0.8) or k == best]
        assert answer["set"] == " | ".join(model.classes[k] for k in sorted(inside, key=lambda k: -raw[row, k]))
        assert answer["abstain"] == ("yes" if threshold is None or raw[row].max() < threshold else "no")
        assert set(answer) == {"label", "confidence", "set", "abstain"}  # one number to act on: the confidence


def test_metrics_are_stored_with_the_calibration(run: Path) -> None:
    stored = json.loads((run / "model" / "model.json").read_text())["trust"]
    assert stored["validation"]["coverage"] >= 0.9
    assert stored["validation"]["nll_after"] <= stored["validation"]["nll_before"]
    assert set(stored["test"]) == set(stored["validation"])  # measured only: nothing is guaranteed there


def test_coverage_kind_of_sets_and_risk(run: Path) -> None:
    model = load_model(run, "cpu")
    images = pixels(model)
    sizes = [
        sum(len(row["set"].split(" | ")) for row in answers(model, images, AnswerOptions(coverage=coverage)))
        for coverage in (0.5, 0.9, 0.99)
    ]
    assert sizes == sorted(sizes)
    assert len(answers(model, images, AnswerOptions(sets="aps"))) == len(images)
    for wrong in ({"coverage": 1.0}, {"coverage": 0.2}, {"coverage": math.nan}, {"risk": 0.0}, {"risk": math.inf}):
        with pytest.raises(UserError, match="must lie between"):
            AnswerOptions(**wrong)


def test_saving_keeps_calibration_and_prototypes(plus: Path, tmp_path: Path) -> None:
    model = load_model(plus, "cpu")
    model.save(tmp_path / "copy")
    again = load_model(tmp_path / "copy", "cpu")
    assert again.trust == model.trust
    assert answers(again, pixels(model), AnswerOptions()) == answers(model, pixels(model), AnswerOptions())
    assert model.predict_proba(toy_images(0, 2)[0]).sum(1) == pytest.approx(1, abs=1e-5)


def test_models_without_calibration_have_three_columns(tmp_path: Path) -> None:
    spec = model_spec("digits", 4, SIDE)
    model = Model(build_net(spec), spec, ("a", "b", "c", "d"), {}, torch.device("cpu"))
    model.save(tmp_path)
    plain = load_model(tmp_path, "cpu")
    assert plain.trust is None and plain.prototypes is None
    Image.fromarray(toy_images(0, 1)[0][0]).save(tmp_path / "a.png")
    rows, _ = predict_files(plain, [tmp_path / "a.png"], AnswerOptions())
    assert list(rows[0]) == ["path", "label", "confidence"]
    assert "not calibrated" in guarantee(None, AnswerOptions())


def test_a_run_without_validation_is_not_calibrated(tmp_path: Path) -> None:
    task = task_from(toy_images(0, 3), [toy_images(1, 3)[0]], size=SIDE, val=0, seed=1)
    options = Options(out=str(tmp_path), threads=1, quiet=True, device="cpu")
    train(toy_run("erm", task, val=0.0), toy_settings("erm", epochs=1, pretrain_epochs=1), options, data=task)
    assert "trust" not in json.loads((tmp_path / "model" / "model.json").read_text())
    assert not (tmp_path / "model" / "prototypes.safetensors").exists()
    assert load_model(tmp_path, "cpu").trust is None


def test_damaged_calibration_is_refused(run: Path, tmp_path: Path) -> None:
    load_model(run, "cpu").save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    for change in ({"temperature": 0.0}, {"thresholds": [1]}, {"quantiles": {}}, {"temperature": "hot"}):
        edit_json(tmp_path / "model.json", trust=about["trust"] | change)
        with pytest.raises(UserError, match="does not hold a valid model"):
            load_model(tmp_path, "cpu")


def test_round_trip_and_what_few_images_guarantee() -> None:
    generator = torch.Generator().manual_seed(3)
    trust = fit_trust(torch.randn(8, 3, generator=generator), torch.arange(8) % 3)
    stored = trust.as_json()
    assert read_trust(parse_record(json.dumps(stored).encode(), TrustRecord)) == trust
    nothing = [math.nan] * len(stored["thresholds"])
    for damage in ({"thresholds": nothing}, {"temperature": 1e-320}, {"images": math.inf}, {"images": "9"}):
        with pytest.raises(ValueError, match=r"damaged|expected"):
            read_trust(as_record(stored | damage, TrustRecord))
    with pytest.raises(ValueError, match="expected"):
        lost = {name: [math.nan] * len(q) for name, q in stored["quantiles"].items()}
        as_record(stored | {"quantiles": lost}, TrustRecord)
    assert trust.quantile(0.99) == float("inf")  # eight images cannot tell 99 %: every class is in the set
    text = guarantee(trust, AnswerOptions(risk=0.01))
    assert "All images are marked abstain: 8 validation images cannot support a risk of 1 %" in text
    assert "confidence: not calibrated (this needs 30 validation images, training had 8); set:" in text
    many = replace(trust, images=40, temperature=1.5)
    assert "confidence: calibrated on 40 validation images of the labeled domain (T = 1.50); set:" in guarantee(
        many, AnswerOptions()
    )
    assert (
        "not rescaled (no temperature fits the 40 validation images of the labeled domain better than T = 1); set:"
        in guarantee(replace(many, temperature=1.0), AnswerOptions())
    )
    assert read_trust(many.as_json()) == many
    some = Trust(9, 1.0, trust.quantiles, tuple(None if risk < 10 else 0.5 for risk in RISKS))
    assert some.lowest_risk() == 0.1
    assert some.threshold(0.999) == 0.5


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("present/hidden 1", None, "missing"),
        ("center/hidden 1", None, "missing"),
        ("labeled_present", None, "missing"),
        ("site/hidden 1", lambda it: it[:2], "the tensor site/hidden 1 is"),
        ("site/hidden 1", lambda it: it * float("nan"), "infinite or NaN"),
        ("present/hidden 1", lambda it: it.float(), "the tensor present/hidden 1 is"),
        ("tau", lambda it: 0 * it, "not positive"),
        ("mine", lambda it: torch.ones(3), "unexpected"),
    ],
)
def test_prototypes_that_do_not_fit_are_refused(name: str, change: Any, text: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    path = tmp_path / "copy" / "model" / "prototypes.safetensors"
    found = load_file(path)
    given = found.pop(name, torch.ones(1))
    save_file(found if change is None else found | {name: change(given).contiguous()}, path)
    restamp(path.parent)
    with pytest.raises(UserError, match=f"does not hold a valid model: .*{text}"):
        load_model(tmp_path / "copy", "cpu")
