"""Loading models: invalid files are refused in one line, nothing in them is executed, and training is not imported."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from cli.fresh import assert_cpu_time
from proud.errors import UserError
from proud.manifest import manifest_file, read_manifest
from proud.model import load
from proud.model.format import read_run
from proud.model.load import load_model
from proud.model.predict import Model, find_images
from proud.nets import models
from proud.nets.models import build_net, model_spec
from proud.stamps import Stamp
from toy import edit_json, restamp, write_folders


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    spec = model_spec("digits", 2, 16)
    Model(build_net(spec), spec, ("cat", "=dog"), {"seed": 1}, torch.device("cpu")).save(tmp_path / "run")
    return tmp_path / "run"


def test_round_trip(saved: Path) -> None:
    model = load_model(saved, "cpu")
    assert model.classes == ("cat", "=dog")
    assert model.config == {"seed": 1}
    assert model.spec == model_spec("digits", 2, 16)


def test_a_saved_model_is_not_taken_for_a_run(saved: Path) -> None:
    with pytest.raises(UserError, match="holds a saved model without the run that trained it: name the run's folder"):
        read_run(saved)


def test_models_of_an_earlier_version_are_refused(saved: Path) -> None:
    about = json.loads((saved / "model.json").read_text())
    edit_json(saved / "model.json", spec=about["spec"] | {"own_share": 0.4})
    with pytest.raises(UserError, match="no longer supported: train again"):
        load_model(saved, "cpu")


def test_a_model_without_its_manifest_is_refused(saved: Path) -> None:
    (saved / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing"):
        load_model(saved, "cpu")


@pytest.mark.parametrize("on_meta", [True, False], ids=["built without memory", "not possible without memory"])
def test_loading_passes_no_image_through_the_network(
    on_meta: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A false size in a stranger's file costs nothing, and networks that need real weights can be loaded."""
    spec, passed = model_spec("test_resnet", 2, 32), []
    count = models.count_features

    def counting(backbone: torch.nn.Module, spec: models.ModelSpec) -> int:
        device = next(backbone.parameters()).device.type
        passed.append(device)
        if device == "meta" and not on_meta:
            raise UserError("cannot take images (Tensor.item() cannot be called on meta tensors)")
        return count(backbone, spec)

    Model(build_net(spec), spec, ("cat", "dog"), {}, torch.device("cpu")).save(tmp_path)
    monkeypatch.setattr(models, "count_features", counting)
    monkeypatch.setattr(load, "count_features", counting)
    assert load_model(tmp_path, "cpu").spec == spec
    assert passed == (["meta"] if on_meta else ["meta", "cpu"])


@pytest.mark.parametrize("change", ["format", "classes", "size", "share", "missing", "torn", "foreign", "pickle"])
def test_invalid_models_are_refused(change: str, saved: Path) -> None:
    about = json.loads((saved / "model.json").read_text())
    if change == "format":
        about["format"] = "other"
    elif change == "classes":
        about["classes"] = ["cat"]
    elif change == "size":
        about["spec"]["size"] = 10**9
    elif change == "share":
        about["spec"]["own_share"] = 1.5
    elif change == "missing":
        del about["spec"]["mean"]
    (saved / "model.json").write_text(json.dumps(about) if change != "torn" else '{"form')
    if change == "foreign":
        (saved / "model.safetensors").write_bytes(b"\x00" * 100)
    elif change == "pickle":
        (saved / "model.safetensors").write_bytes(pickle.dumps({"weights": [1, 2]}))
    restamp(saved)
    with pytest.raises(UserError, match="does not hold a valid model"):
        load_model(saved, "cpu")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_one_wrong_bit_is_refused(name: str, saved: Path) -> None:
    """In a place where the content stays valid: a letter of a class, the last number of the weights."""
    content = bytearray((saved / name).read_bytes())
    content[content.index(b"cat") if name == "model.json" else -4] ^= 1
    (saved / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is damaged"):
        load_model(saved, "cpu")


def test_an_unfinished_run_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="has not finished"):
        load_model(tmp_path)


def test_find_images_sorts_and_ignores_other_files(tmp_path: Path) -> None:
    write_folders(tmp_path, {"a": 0}, per_class=1)
    (tmp_path / ".hidden.png").touch()
    (tmp_path / "readme.md").touch()
    found = find_images(tmp_path)
    assert found == sorted(found)
    assert len(found) == 4
    assert find_images([tmp_path, found[0]]) == found


def test_files_that_are_not_classified_give_a_warning(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "root", {"a": 0}, per_class=1)
    outside = write_folders(tmp_path / "outside", {"b": 0}, per_class=1)
    for number in range(20):
        (root / f"{number}.heic").touch()
    with pytest.warns(UserWarning, match=r"root: some files are not read \(20 \.heic; supported: \.bmp") as caught:
        assert len(find_images(root)) == 4
    assert len(caught) == 1
    (root / "a" / "more").symlink_to(outside / "b")
    with pytest.warns(UserWarning, match=r"a: 1 link that leaves the folder is not followed \(more\)"):
        assert len(find_images([outside, root / "a"])) == 8
    shutil.rmtree(root / "a")
    with pytest.warns(UserWarning, match=r"root has no images and is skipped \(files: 20 \.heic"):
        assert len(find_images([outside, root])) == 4
    with pytest.raises(UserError, match=r"No images found in .*root \(files: 20 \.heic; supported: .*\)\.$"):
        find_images(root)


def test_saving_replaces_nothing_silently(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved, "cpu")
    with pytest.raises(UserError, match="overwrite=True"):
        model.save(saved)
    (saved / "prototypes.safetensors").write_bytes(b"another model's")
    model.save(saved, overwrite=True)
    assert {path.name for path in saved.iterdir()} == {"model.json", "model.safetensors", "manifest.json"}
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="has other files"):
        model.save(mine, overwrite=True)
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_warnings_of_the_run_are_kept(saved: Path, tmp_path: Path) -> None:
    model = load_model(saved, "cpu")
    model.warnings = ("It learned nothing.",)
    model.save(tmp_path / "again")
    assert load_model(tmp_path / "again", "cpu").warnings == ("It learned nothing.",)


def test_a_file_much_larger_than_the_network_is_not_read(saved: Path) -> None:
    with (saved / "model.safetensors").open("r+b") as file:
        file.truncate(3_000_000_000)  # a hole, which takes no room
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        load_model(saved, "cpu")
    stamps = read_manifest(saved) or {}
    stamps["model.safetensors"] = Stamp(3_000_000_000, "")
    (saved / "manifest.json").write_bytes(manifest_file(stamps))
    with pytest.raises(UserError, match=r"3,000,000,000 bytes exceed the limit"):
        load_model(saved, "cpu")


LOADING = """
import sys
from proud import load
load
ours = [name for name in sys.modules if name.split(".")[0] == "proud"]
rooms = {name.split(".")[1] for name in ours if "." in name}
assert not rooms & {"training", "distributed", "bench", "methods", "report", "cli"}, sorted(rooms)
assert not {"matplotlib", "sklearn", "ray"} & set(sys.modules)
assert len(ours) <= 60, sorted(ours)
"""


def test_load_imports_nothing_of_training() -> None:
    """A program that only predicts starts hardly later than `import torch`."""
    assert_cpu_time(LOADING, 1.5)
