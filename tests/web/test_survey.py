"""What the page shows is what the model says: the same answers and picks as the other commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from proud.cli import main as cli
from proud.data.csv_table import read_table
from proud.errors import UserError
from proud.model import survey as module
from proud.model.atlas import Atlas
from proud.model.feature_store import FeatureStore, trim_stores
from proud.model.load import load_model
from proud.model.survey import survey
from web.local import train


def test_answers_are_those_of_predict(atlas: Atlas, trained: Path) -> None:
    files = [str(path) for path in atlas.sources[:96]]
    table = load_model(trained, "cpu").predict_table(files)
    assert [atlas.classes[k] for k in atlas.columns["guess"][:96]] == table["label"].tolist()
    np.testing.assert_allclose(atlas.columns["confidence"][:96], table["confidence"], atol=1e-5)
    assert atlas.columns["abstain"][:96].tolist() == table["abstain"].tolist()


def test_picks_are_those_of_label_next(atlas: Atlas, trained: Path, tmp_path: Path) -> None:
    assert (
        cli.run(["label-next", str(trained), "--k", "20", "--out", str(tmp_path / "extra.csv"), "--device", "cpu"]) == 0
    )
    picked = {
        site: [row["path"] for _, row in read_table(tmp_path / "extra.csv") if row["domain"] == site]
        for site in ("north", "south")
    }
    for site in atlas.sites[:2]:
        places = atlas.columns["suggested"][site.start : site.stop]
        ours = [atlas.locations[site.start + at] for at in np.argsort(places) if places[at] >= 0]
        assert len(set(ours) & set(picked[site.name])) >= 19, "half precision may swap the last ones"


def test_the_labeled_images_are_there_with_their_classes(atlas: Atlas) -> None:
    assert [site.name for site in atlas.sites] == ["north", "south", "central"]
    assert len(atlas) == 96
    for row in atlas.labeled_rows:
        assert f"/{atlas.classes[atlas.columns['truth'][row]]}/" in atlas.locations[row]
    assert (atlas.columns["truth"][:96] == -1).all()


def test_features_are_computed_once(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = survey(trained, cache=tmp_path, device="cpu")
    decoded: list[int] = []
    real = module.Reading.pieces

    def pieces(reading: module.Reading):  # type: ignore[no-untyped-def]
        decoded.append(len(reading.sources))
        return real(reading)

    monkeypatch.setattr(module.Reading, "pieces", pieces)
    again = survey(trained, cache=tmp_path, device="cpu")
    assert decoded == []
    for name, values in first.columns.items():
        assert (values == again.columns[name]).all(), name


def test_an_interrupted_store_goes_on(trained: Path, tmp_path: Path) -> None:
    whole = survey(trained, cache=tmp_path, device="cpu")
    for name, size in (("contents.u8", 32 * 20 + 5), ("features.f16", 2 * whole.width * 25 + 1)):
        with (whole.store / name).open("rb+") as file:
            file.truncate(size)
    again = survey(trained, cache=tmp_path, device="cpu")
    for name in ("guess", "confidence", "doubt", "suggested", "near"):
        assert (whole.columns[name] == again.columns[name]).all(), name


def test_folders_of_new_images(trained: Path, data: Path, tmp_path: Path) -> None:
    new = tmp_path / "west"
    shutil.copytree(data / "south" / "across", new / "a" / "b")
    (new / "broken.png").write_bytes(b"not an image")
    found = survey(trained, [new], cache=tmp_path / "features", device="cpu")
    assert [(site.name, site.in_run, site.labeled) for site in found.sites] == [
        ("west", False, False),
        ("central", True, True),
    ]
    assert len(found) == 12
    assert all(location.startswith("west/a/b/") for location in found.locations[:12])
    assert any("broken.png" in text for text in found.notices)


def test_a_run_without_its_images_can_still_look_at_folders(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    run = tmp_path / "run"
    assert train(tmp_path / "data", run, "--epochs", "1", "--pretrain-epochs", "1") == 0
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(UserError, match="does not exist here"):
        survey(run, cache=tmp_path / "features", device="cpu")
    found = survey(run, [data / "north"], cache=tmp_path / "features", device="cpu")
    assert [site.name for site in found.sites] == ["north"]
    assert any("alike are not shown" in text for text in found.notices)
    assert [list(images) for images in found.exemplars] == [[]] * 4


def test_two_sites_need_two_names(trained: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="same name"):
        survey(trained, [data / "north", data / "north"], cache=tmp_path, device="cpu")


def test_methods_without_prototypes(data: Path, tmp_path: Path) -> None:
    assert train(data, tmp_path / "run", "--epochs", "1", "--pretrain-epochs", "1", "--method", "erm") == 0
    found = survey(tmp_path / "run", cache=tmp_path / "features", device="cpu")
    assert (found.columns["near"][:, 0] >= 0).all(), "class means take their place"
    assert found.columns["disagreement"].max() <= 1
    assert all(len(images) == 3 for images in found.exemplars)


def test_stores_of_other_networks_are_removed_when_there_are_too_many(tmp_path: Path) -> None:
    for name in ("old", "new"):
        store = FeatureStore(tmp_path / name, 4, 2)
        with store.writing():
            store.add(["00" * 32, "11" * 32], np.ones((2, 4)), np.ones((2, 2)))
    trim_stores(tmp_path, keep=tmp_path / "new", most=100)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    rows = np.array([1, 0])
    assert next(store.features(rows)).tolist() == [[1.0] * 4] * 2
