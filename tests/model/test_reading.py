"""Many images, read piece by piece: problems are reported once."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proud.data import decode
from proud.data.decode import PixelFormat
from proud.errors import UserError
from proud.model import reading
from proud.model.answers import AnswerOptions
from proud.model.predict import Model, find_images, predict_files
from proud.model.reading import Reading
from proud.nets.models import build_net, model_spec
from toy import CLASSES, SIDE, toy_images


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 3)


@pytest.fixture(scope="module")
def model() -> Model:
    spec = model_spec("digits", len(CLASSES), SIDE)
    return Model(build_net(spec, seed=1), spec, CLASSES, {}, torch.device("cpu"))


def write_greys(folder: Path, count: int, times: int, name: str = "") -> Path:
    """8-bit grey values, multiplied, in 16-bit files."""
    folder.mkdir(exist_ok=True)
    for row, image in enumerate(toy_images(0, 4)[0][:count, ..., 0]):
        Image.fromarray(image.astype(np.uint16) * times).save(folder / f"{name}{row:02d}.png")
    return folder


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(("dark", "warned"), [(8, "8 of 8"), (2, "2 of 10"), (1, ""), (0, "")])
def test_nearly_black_images_give_one_warning(dark: int, warned: str, model: Model, tmp_path: Path) -> None:
    write_greys(tmp_path, dark, 16, "dark")  # 12 bits in 16
    write_greys(tmp_path, {8: 0, 2: 8, 1: 12, 0: 3}[dark], 257, "light")
    for use in (lambda: predict_files(model, find_images(tmp_path), AnswerOptions()), lambda: model.predict(tmp_path)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            use()
        texts = [str(warning.message) for warning in caught]
        assert len(texts) == bool(warned)
        assert not warned or texts[0].startswith(f"{warned} images are nearly black: no value above 1")


@pytest.mark.usefixtures("small_pieces")
def test_pieces_give_the_same_answers_as_the_whole(model: Model, tmp_path: Path) -> None:
    images = toy_images(0, 2)[0]
    found = model.predict_proba(images)
    pixels = torch.cat([piece for _, piece in Reading(list(images), PixelFormat(18)).pieces()])
    whole = model.logits(pixels).softmax(1)
    np.testing.assert_allclose(found, whole.numpy(), rtol=1e-5)
    assert model.predict_proba(images[:0]).shape == (0, 4)
    write_greys(tmp_path, 7, 257)
    for row in (3, 4, 5):  # a whole piece
        (tmp_path / f"{row:02d}.png").write_bytes(b"no picture")
    rows, bad = predict_files(model, find_images(tmp_path), AnswerOptions(), skip_bad=True)
    assert [Path(row["path"]).stem for row in rows] == ["00", "01", "02", "06"]
    assert [Path(file.path).stem for file in bad] == ["03", "04", "05"]
    with pytest.raises(UserError, match="3 images cannot be used"):
        predict_files(model, find_images(tmp_path), AnswerOptions())


@pytest.mark.usefixtures("small_pieces")
def test_progress_counts_what_is_done_with_the_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decode, "SECONDS_BEFORE_BAR", -1)
    monkeypatch.setattr(decode, "SECONDS_BETWEEN_LINES", -1)
    images = list(toy_images(0, 2)[0])
    taken = []
    for rows, _ in Reading(images, PixelFormat(18), progress=True).pieces():
        taken.append(f"Reading images: {rows[0]} of {len(images)}")
    assert capsys.readouterr().err.splitlines() == taken and len(taken) > 2
