"""Non-square images: a model reads them as in training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import proud
from proud.cli import main as cli
from proud.data.decode import PixelFormat, in_square
from proud.errors import UserError
from proud.model.load import load_model
from toy import edit_json


def pictures(count: int, seed: int, right: bool) -> np.ndarray:
    """Three times as wide as high; the difference is at one end, outside the centre crop."""
    found = np.random.default_rng(seed).integers(0, 60, (count, 16, 48, 3), np.uint8)
    found[:, :, 40:48] += 180 if right else 0
    found[:, :, 0:8] += 0 if right else 180
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("square")
    for number, domain in enumerate(("north", "south", "west")):
        for right in (False, True):
            folder = home / "data" / domain / ("right" if right else "left")
            folder.mkdir(parents=True)
            for place, pixels in enumerate(pictures(8, 2 * number + right, right)):
                Image.fromarray(pixels).save(folder / f"{place}.png")
    command = f"train --data {home / 'data'} --labeled north --test west --model digits --size 16 --square pad"
    command += f" --epochs 1 --pretrain-epochs 20 --batch-size 8 --device cpu --threads 1 --quiet --out {home / 'run'}"
    assert cli.run(command.split()) == 0
    return home / "run"


def test_padding_keeps_what_a_centre_crop_would_lose(run: Path) -> None:
    model = load_model(run)
    assert model.spec.square == "pad"
    images = np.concatenate([pictures(6, 9, right) for right in (False, True)])
    assert model.predict(images).tolist() == 6 * ["left"] + 6 * ["right"]
    padded = [np.asarray(in_square(Image.fromarray(image), PixelFormat(48, "pad"))) for image in images]
    np.testing.assert_allclose(model.predict_proba(images), model.predict_proba(padded), atol=0.02)
    assert json.loads((run / "result.json").read_text())["test_accuracy"] == 1


def test_predict_and_evaluate_read_files_in_the_same_way(run: Path, tmp_path: Path) -> None:
    data = run.parent / "data"
    assert cli.run(f"evaluate {run} --data {data} --domain west --device cpu".split()) == 0
    out = tmp_path / "found.csv"
    assert cli.run(f"predict {run} {data / 'west' / 'right'} --out {out} --device cpu".split()) == 0
    assert all(line.split(",")[1] == "right" for line in out.read_text().splitlines()[1:])


def test_the_choice_is_saved_and_unknown_ones_are_refused(run: Path, tmp_path: Path) -> None:
    load_model(run).save(tmp_path / "saved")
    path = tmp_path / "saved" / "model.json"
    about = json.loads(path.read_text())
    assert about["spec"]["square"] == "pad"
    edit_json(path, spec=about["spec"] | {"square": "round"})
    with pytest.raises(UserError, match=r"does not hold a valid model: spec\.square: "):
        load_model(path.parent)


@pytest.mark.filterwarnings("ignore:.*is useless on")  # one epoch is short
def test_the_choice_in_python() -> None:
    labeled = np.concatenate([pictures(8, 1, False), pictures(8, 2, True)])
    settings = {"model": "digits", "size": 32, "epochs": 1, "pretrain_epochs": 1, "batch_size": 8, "device": "cpu"}
    others = [np.concatenate([pictures(8, 3, False), pictures(8, 4, True)])]
    asked = {"labeled": (labeled, 8 * ["left"] + 8 * ["right"]), "unlabeled": others}
    assert proud.ProUD(**settings, square="stretch").fit(**asked).model_.spec.square == "stretch"
    with pytest.raises(UserError, match="--square must be middle, pad or stretch, got 'round'"):
        proud.ProUD(**settings, square="round").fit(**asked)
