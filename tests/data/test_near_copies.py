"""Near-copies: which alterations are recognised, that other pictures are not, and what is said about them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFilter
from trees import site_task

from proud.config import DomainSpec, ReadSpec
from proud.data import near_copies as module
from proud.data.decode import PixelFormat, decode, pixels_of
from proud.data.near_copies import ALIKE, near_copies, signatures
from proud.data.site_check import check_data


def scene(seed: int, side: int = 96) -> Image.Image:
    """Blurred ellipses on a gradient."""
    random = np.random.default_rng(seed)
    ramp = np.linspace(*random.integers(60, 200, 2), side)
    image = Image.fromarray(np.broadcast_to(ramp[:, None], (side, side)).astype(np.uint8)).convert("RGB")
    draw = ImageDraw.Draw(image)
    for _ in range(14):
        x, y, width, height = random.integers(0, side, 2).tolist() + random.integers(6, 40, 2).tolist()
        draw.ellipse((x, y, x + width, y + height), fill=tuple(random.integers(0, 255, 3).tolist()))
    return image.filter(ImageFilter.GaussianBlur(0.7))


def signature(image: Image.Image) -> torch.Tensor:
    return signatures(decode(pixels_of(image), PixelFormat(72))[None])[0]


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    content = io.BytesIO()
    image.save(content, "JPEG", quality=quality)
    return Image.open(content)


ALTERED = {
    "recompressed": lambda image: jpeg(image, 30),
    "smaller": lambda image: image.resize((48, 48)),
    "larger": lambda image: image.resize((150, 150)),
    "brighter": lambda image: image.point(lambda value: min(255, round(1.15 * value))),
    "grey": lambda image: image.convert("L"),
    "shifted": lambda image: Image.fromarray(np.roll(np.asarray(image), (2, 2), (0, 1))),
    "cropped": lambda image: image.crop((1, 1, 95, 95)),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_copies_are_recognised(name: str) -> None:
    alike = [float(signature(scene(seed)) @ signature(ALTERED[name](scene(seed)))) for seed in range(10)]
    assert np.median(alike) >= ALIKE


def test_other_pictures_are_not_copies() -> None:
    images = torch.stack([decode(pixels_of(scene(seed)), PixelFormat(72)) for seed in range(60)])
    assert near_copies(signatures(images)) == []


def test_blank_images_are_alike_to_none() -> None:
    blank = torch.full((3, 3, 64, 64), 250, dtype=torch.uint8)
    blank[1, :, 5, 5] = 252
    assert near_copies(signatures(blank)) == []


def test_pairs_in_pieces_are_those_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = torch.nn.functional.normalize(torch.randn(50, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    monkeypatch.setattr(module, "ALIKE", 0.8)
    alike = signs @ signs.T >= 0.8
    earlier = {row for row in range(50) if alike[row, :row].any()}
    for at_once in (256, 7):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
        pairs = near_copies(signs)
        assert {row for row, _ in pairs} == earlier and earlier
        assert all(place < row and alike[row, place] for row, place in pairs)
        assert {row for row, _ in near_copies(signs[:20], signs[20:])} == {
            row for row in range(20) if alike[row, 20:].any()
        }
    assert near_copies(signs[:0]) == near_copies(signs[:0], signs) == near_copies(signs, signs[:0]) == []


# ---- what is said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three sites of scenes; a recompressed image of north is also in south, one of central twice in central."""
    for site, name in enumerate(("central", "north", "south")):
        for number in range(12):
            path = tmp_path / name / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            scene(100 * site + number).save(path)
    jpeg(scene(103), 50).save(tmp_path / "south" / "dog" / "seen.png")
    jpeg(scene(2), 50).save(tmp_path / "central" / "cat" / "again.png")
    return tmp_path


def test_data_check_reports_near_copies_of_one_site_and_of_two(root: Path) -> None:
    (root / "south" / "cat" / "copy.png").write_bytes((root / "north" / "cat" / "0.png").read_bytes())
    found = {finding.text: finding.level for finding in check_data(DomainSpec(str(root)), ReadSpec()).findings}
    (own,) = (text for text in found if text.startswith("1 image of central looks like another one of it"))
    (two,) = (text for text in found if text.startswith("1 image of south looks like one of north"))
    assert found[own] == "note" and "central/cat/2.png" in own and "central/cat/again.png" in own
    assert found[two] == "warning" and "south/dog/seen.png and north/dog/3.png" in two
    assert sum("look" in text for text in found) == 2  # the copy is called a copy


def test_near_copies_of_one_group_are_expected(root: Path) -> None:
    lines = ["path,domain,label,group"]
    for path in sorted(root.glob("central/*/*.png")):
        group = {"2": "one", "again": "one"}.get(path.stem, path.stem)
        lines.append(f"{path.relative_to(root)},central,{path.parent.name},{group}")
    for groups, expected in ((True, 0), (False, 1)):
        (root / "all.csv").write_text("\n".join(line if groups else line.rpartition(",")[0] for line in lines))
        texts = [finding.text for finding in check_data(DomainSpec(str(root / "all.csv")), ReadSpec()).findings]
        assert sum("looks like another one" in text for text in texts) == expected


def test_training_warns_of_test_images_that_look_like_others(root: Path) -> None:
    text = r"1 of the 13 images of south looks like an image that is trained on, such as south/dog/seen\.png and north"
    with pytest.warns(UserWarning, match=text):
        site_task(root, val=0.0, size=64)


def test_training_warns_of_validation_images_that_look_like_others(root: Path) -> None:
    for number in range(0, 12, 2):
        jpeg(scene(number), 50).save(root / "central" / "cat" / f"{number}-again.png")
    with pytest.warns(UserWarning, match=r"of the \d+ validation images of central look"):
        site_task(root, val=0.5, size=64, test="none")


def test_small_images_and_equal_ones_are_not_called_alike(root: Path) -> None:
    (root / "south" / "dog" / "seen.png").write_bytes((root / "north" / "dog" / "3.png").read_bytes())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        site_task(root, val=0.0, size=64)
    assert [str(warning.message)[:30] for warning in caught] == ["1 of the 13 images of south is"]
    for path in root.rglob("*.png"):
        with Image.open(path) as image:
            small = image.resize((48, 48))
        small.save(path)
    jpeg(scene(103), 50).resize((48, 48)).save(root / "south" / "dog" / "seen.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        site_task(root, val=0.0, size=64)
