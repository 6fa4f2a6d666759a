"""The Python interface: folders, arrays and domain types in, class names out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import proud
from proud import ProUD, UserError
from proud.data.python_inputs import catalog_of
from proud.data.shapes import native_side
from proud.data.types import UnlabeledDomain
from toy import CLASSES, SHORT, as_domain, same_network, toy_images, write_folders


@pytest.fixture(scope="module")
def fitted() -> ProUD:
    hidden = [toy_images(t, 12)[0] for t in (1, 2)]
    return ProUD("proud", **SHORT).fit(labeled=toy_images(0, 12), unlabeled=hidden, test=toy_images(3, 4))


def test_fitted_attributes(fitted: ProUD) -> None:
    assert fitted.classes_.tolist() == list(CLASSES)
    assert [record["stage"] for record in fitted.history_] == ["pretrain"] * 6 + ["main"] * 2
    assert {"val_accuracy", "test_accuracy"} <= fitted.result_.keys()
    first = fitted.pseudo_labels_["unlabeled 1"]
    assert first["row"].tolist() == list(range(48))
    assert first["label"].shape == first["uncertainty"].shape == (48,)
    truth = toy_images(1, 12)[1]
    assert (first["label"] == truth).mean() == pytest.approx(
        (fitted.predict(toy_images(1, 12)[0]) == truth).mean(), abs=0.2
    )


def test_predict_and_score(fitted: ProUD, tmp_path: Path) -> None:
    images, labels = toy_images(0, 5, seed=4)
    probabilities = fitted.predict_proba(images)
    assert probabilities.shape == (20, 4)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    found = fitted.predict(images)
    assert found.tolist() == fitted.classes_[probabilities.argmax(1)].tolist()
    assert fitted.score(images, labels) > 0.8
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert fitted.predict(channels_first).tolist() == found.tolist()
    for row, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{row:02d}.png")
    assert fitted.predict(tmp_path).tolist() == found.tolist()
    assert fitted.predict(str(tmp_path / "03.png")).tolist() == [found[3]]
    assert fitted.predict([tmp_path / "03.png", tmp_path / "01.png"]).tolist() == [found[3], found[1]]


def test_bad_files_are_named_or_skipped(fitted: ProUD, tmp_path: Path) -> None:
    images, folder = toy_images(0, 1)[0], tmp_path / "images"
    folder.mkdir()
    for row, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{row}.png")
    (folder / "1.png").write_bytes(b"no picture")
    fitted.save(tmp_path / "mine")
    for model in (fitted, proud.load(tmp_path / "mine", device="cpu")):
        for use in (model.predict, model.predict_proba, model.predict_table):
            with pytest.raises(
                UserError, match=r"1 image cannot be used:\n.*1\.png: not an image.*\n.* skip_bad=True"
            ) as error:
                use(folder)
            assert "--" not in str(error.value)
        with pytest.warns(UserWarning, match=r"1 unreadable image is skipped: .*1\.png"):
            found = model.predict(folder, skip_bad=True)
        with pytest.warns(UserWarning, match="skipped"):
            table = model.predict_table(folder, skip_bad=True)
        assert [Path(path).name for path in table["path"]] == ["0.png", "2.png", "3.png"]
        assert table["label"].tolist() == found.tolist() == model.predict(images[[0, 2, 3]]).tolist()


def test_a_table_of_answers(fitted: ProUD) -> None:
    images = toy_images(3, 3)[0]
    table = fitted.predict_table(images, coverage=0.8)
    assert list(table) == ["row", "label", "confidence", "set", "abstain"]
    assert table["row"].tolist() == list(range(12))
    assert table["label"].tolist() == fitted.predict(images).tolist()
    np.testing.assert_allclose(table["confidence"], fitted.predict_proba(images).max(1), atol=1e-5)
    assert table["abstain"].dtype == bool
    assert {type(inside) for inside in table["set"]} == {tuple}
    assert [inside[0] for inside in table["set"]] == table["label"].tolist()
    assert fitted.predict_table(images[:0])["label"].shape == (0,)
    with pytest.raises(UserError, match="must lie between"):
        fitted.predict_table(images, risk=2)
    with pytest.raises(UserError, match="one of lac, aps"):
        fitted.predict_table(images, sets="raps")


def test_save_and_load(fitted: ProUD, tmp_path: Path) -> None:
    fitted.save(tmp_path / "mine")
    saved = {"model.json", "model.safetensors", "prototypes.safetensors", "README.md", "manifest.json"}
    assert {path.name for path in (tmp_path / "mine").iterdir()} == saved
    loaded = proud.load(tmp_path / "mine", device="cpu")
    images = toy_images(2, 2)[0]
    np.testing.assert_array_equal(loaded.predict_proba(images), fitted.predict_proba(images))
    assert loaded.predict(images).tolist() == fitted.predict(images).tolist()


def test_the_constructor_only_stores() -> None:
    model = ProUD(method="erm", epochs=3, alpha=0.25)
    assert model.get_params()["epochs"] == 3
    assert model.get_params()["alpha"] == 0.25
    assert repr(model) == "ProUD(method='erm', epochs=3, alpha=0.25)"
    assert model.set_params(epochs=4, alpha=1.0) is model
    assert (model.get_params()["epochs"], model.get_params()["alpha"]) == (4, 1.0)
    from sklearn.base import clone

    assert clone(model).get_params() == model.get_params()
    assert not [name for name in vars(model) if name.endswith("_")]


def test_folders_arrays_and_the_command_agree(tmp_path: Path) -> None:
    from proud.cli.main import run

    root = write_folders(tmp_path / "data", {"central": 0, "north": 1, "south": 2}, per_class=3)
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1}
    model = ProUD(**short, out=tmp_path / "python")
    assert model.fit(labeled=root / "central", unlabeled=[str(root / "north"), root / "south"]) is model
    assert list(model.pseudo_labels_) == ["north", "south"]
    assert all(Path(path).is_file() for path in model.pseudo_labels_["north"]["path"])
    assert (tmp_path / "python" / "run.json").is_file()
    flags = "--size 16 --epochs 1 --batch-size 16 --lr 0.02 --pretrain-epochs 1 --weight-decay 0.0005 --least-steps 1"
    where = ["--data", str(root), "--labeled", "central", "--out", str(tmp_path / "command")]
    assert run(["train", *where, *flags.split(), "--device", "cpu", "--quiet"]) == 0
    names = [tmp_path / name / "model" / "model.safetensors" for name in ("python", "command")]
    assert names[0].read_bytes() == names[1].read_bytes()
    again = ProUD(**short).fit(root / "central", unlabeled=[root / "north", root / "south"])
    assert same_network(model, again)


def test_domain_types_and_mixtures(tmp_path: Path) -> None:
    root = write_folders(tmp_path, {"central": 0, "north": 1}, per_class=3)
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm"}
    images = torch.from_numpy(toy_images(2, 3)[0]).permute(0, 3, 1, 2).contiguous()
    bare = UnlabeledDomain("bare", images, tuple(f"{row:03d}" for row in range(len(images))))
    others = [root / "north", toy_images(3, 3)[0], bare]
    model = ProUD(**short).fit(root / "central", unlabeled=others, test=toy_images(4, 2))
    assert model.classes_.tolist() == list(CLASSES)
    model = ProUD(**short).fit(as_domain("site", *toy_images(0, 3)), unlabeled=bare)
    assert model.classes_.tolist() == list(CLASSES)


def test_whole_numbers_as_labels() -> None:
    images, labels = toy_images(0, 3)
    numbers = np.array([CLASSES.index(label) for label in labels])
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm"}).fit(
        (images, numbers), unlabeled=[toy_images(1, 2)[0]]
    )
    assert model.classes_.tolist() == [0, 1, 2, 3] and model.model_.classes == ("0", "1", "2", "3")
    found = model.predict(images)
    assert found.dtype == numbers.dtype and model.score(images, numbers) == (found == numbers).mean()
    table = model.predict_table(images)
    assert table["label"].tolist() == found.tolist() and {type(k) for inside in table["set"] for k in inside} == {int}


def test_pseudo_labels_have_the_type_of_the_labels() -> None:
    images, labels = toy_images(0, 3)
    numbers = torch.tensor([CLASSES.index(label) for label in labels])
    model = ProUD(**SHORT | {"epochs": 1, "pretrain_epochs": 1}).fit((images, numbers), unlabeled=[toy_images(1, 2)[0]])
    (found,) = model.pseudo_labels_.values()
    assert found["label"].dtype == model.classes_.dtype == np.int64


def test_one_small_image_in_a_list_does_not_choose_the_network() -> None:
    sides = [200] * 29 + [60]
    pictures = [Image.new("RGB", (side, side + 5), (side, 0, row)) for row, side in enumerate(sides)]
    arrays = [np.asarray(each) for each in pictures]
    for images in (pictures, arrays, [each.transpose(2, 0, 1) for each in arrays]):
        found = catalog_of((images, ["a", "b", "c"] * 10), [images])
        assert native_side(found.catalog, found.catalog.domains[found.labeled]) == 200


@pytest.mark.filterwarnings("ignore:.*are classified as")
def test_lists_of_images_of_any_size(fitted: ProUD) -> None:
    images, labels = toy_images(0, 3)
    other_sizes = [np.asarray(Image.fromarray(image).resize((30 + row, 40))) for row, image in enumerate(images)]
    as_pictures = [Image.fromarray(image) for image in images]
    assert fitted.predict(as_pictures).tolist() == fitted.predict(images).tolist()
    assert len(fitted.predict(other_sizes)) == len(images)
    assert len(fitted.predict([images[0].transpose(2, 0, 1), images[1][..., 0]])) == 2
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm"}
    one = ProUD(**short).fit((as_pictures, labels), unlabeled=[list(toy_images(1, 2)[0])])
    assert same_network(one, ProUD(**short).fit((images, labels), unlabeled=[toy_images(1, 2)[0]]))
    assert len(ProUD(**short).fit((other_sizes, labels), unlabeled=[other_sizes]).classes_) == len(CLASSES)


def test_images_in_memory_are_read_like_their_files(fitted: ProUD, tmp_path: Path) -> None:
    pixels = toy_images(0, 1)[0][0]
    alpha = np.dstack([pixels, np.full(pixels.shape[:2], 90, np.uint8)])
    deep = pixels[..., 0].astype(np.uint16) * 200
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep).save(tmp_path / "deep.tif")
    Image.fromarray(pixels).convert("P").save(tmp_path / "palette.png", transparency=3)
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=turned)
    for path in sorted(tmp_path.iterdir()):
        with Image.open(path) as picture:
            found = fitted.predict_proba([picture])
        assert np.allclose(found, fitted.predict_proba([path]), atol=1e-5), path.name
    with pytest.raises(UserError, match="floating-point"):
        fitted.predict([Image.fromarray(pixels[..., 0].astype(np.float32))])


def test_invalid_lists_of_images_are_refused(fitted: ProUD) -> None:
    images, labels = toy_images(0, 2)
    with pytest.raises(UserError, match=r"image 2 of 'images' has the shape \[4, 5, 6\]"):
        fitted.predict([images[0], np.zeros((4, 5, 6), np.uint8)])
    with pytest.raises(UserError, match="image 1 of 'images' is float64"):
        fitted.predict([images[0] / 255])
    with pytest.raises(UserError, match="no images"):
        fitted.predict([])
    with pytest.raises(UserError, match="domain 1 is a pair"):
        ProUD(**SHORT).fit((images, labels), unlabeled=[(images, labels)])
