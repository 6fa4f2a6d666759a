"""The Python interface: every form in which images may be given, names of sites, clones, pickles and texts."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from proud import ProUD, UserError
from proud.data.python_inputs import catalog_of
from toy import CLASSES, SHORT, same_network, toy_images, write_folders

pandas = pytest.importorskip("pandas")

ERM = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    looks = {"central": 0, "north": 1, "south": 2, "west": 3}
    return write_folders(tmp_path_factory.mktemp("data"), looks, per_class=3)


@pytest.fixture(scope="module")
def fitted(root: Path) -> ProUD:
    return ProUD(**ERM).fit(root / "central", unlabeled={"north": root / "north", "south": root / "south"})


def files(root: Path, site: str) -> tuple[list[str], list[str]]:
    paths = sorted((root / site).rglob("*.png"))
    return [str(path) for path in paths], [path.parent.name for path in paths]


class Pairs(Dataset):
    """Images and labels, as torchvision's datasets have them."""

    classes = CLASSES

    def __init__(self, root: Path, site: str, as_image: Callable[[Image.Image], Any] = lambda image: image) -> None:
        self.paths, self.labels = files(root, site)
        self.as_image = as_image

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        with Image.open(self.paths[row]) as image:
            return self.as_image(image.convert("RGB")), CLASSES.index(self.labels[row])


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(())


def frame(root: Path, *sites: str) -> Any:
    rows = [(path, site, label) for site in sites for path, label in zip(*files(root, site), strict=True)]
    return pandas.DataFrame(rows, columns=["path", "domain", "label"])


def hub(root: Path, site: str) -> Any:
    datasets = pytest.importorskip("datasets")
    paths, labels = files(root, site)
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=list(CLASSES))})
    return datasets.Dataset.from_dict({"picture": paths, "kind": labels}, features=features)


FORMS: dict[str, Callable[[Path, str], Any]] = {
    "folder": lambda root, site: root / site,
    "files": files,
    "frame": frame,
    "dataset": Pairs,
    "uint8 tensors": lambda root, site: Pairs(
        root, site, lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1)
    ),
    "hub": hub,
    "arrays": lambda root, site: (
        [np.asarray(Image.open(path)) for path in files(root, site)[0]],
        files(root, site)[1],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_fitted_and_scored(form: str, root: Path, fitted: ProUD) -> None:
    given = FORMS[form](root, "central")
    hidden = given_images(FORMS[form](root, "north"))
    model = ProUD(**ERM).fit({"central": given}, unlabeled={"north": hidden}, test={"west": FORMS[form](root, "west")})
    assert model.classes_.tolist() == list(CLASSES)
    west = FORMS[form](root, "west")
    assert model.result_["test_accuracy"] == pytest.approx(model.score(west))
    expected = fitted.predict(root / "west")
    assert fitted.predict(given_images(west)).tolist() == expected.tolist()
    assert fitted.score(west) == np.mean(expected == files(root, "west")[1])


def given_images(form: Any) -> Any:
    return form[0] if isinstance(form, tuple) else form


def test_forms_give_the_same_network(root: Path) -> None:
    """Names and order of files have no influence; pixels from memory have other hashes, so another order."""
    others = [root / "north", root / "south"]
    one = ProUD(**ERM).fit(root / "central", unlabeled=others)
    table = frame(root, "central")
    for labeled, unlabeled in (
        (files(root, "central"), {"a": files(root, "north")[0], "b": files(root, "south")[0]}),
        (table, frame(root, "north", "south")),
    ):
        assert same_network(one, ProUD(**ERM).fit(labeled, unlabeled=unlabeled))
    assert same_network(one, ProUD(**ERM).fit(table["path"], table["label"], unlabeled=others)), "as in scikit-learn"


def test_tables_in_files(root: Path, tmp_path: Path) -> None:
    frame(root, "central").to_csv(tmp_path / "central.csv", index=False, sep=";")
    frame(root, "north", "south").drop(columns="label").to_csv(tmp_path / "others.csv", index=False)
    model = ProUD(**ERM | {"method": "proud"}).fit(tmp_path / "central.csv", unlabeled=tmp_path / "others.csv")
    assert list(model.pseudo_labels_) == ["north", "south"], "each domain of a table is a site"
    frame(root, "west").to_csv(tmp_path / "west.csv", index=False)
    assert model.score(tmp_path / "west.csv") == model.score(root / "west")
    assert len(model.predict_table(tmp_path / "west.csv")["path"]) == 12


def test_labels_of_a_few_unlabeled_images(root: Path, tmp_path: Path) -> None:
    some = frame(root, "north").iloc[:2]
    some.to_csv(tmp_path / "extra.csv", index=False)
    proud = ERM | {"method": "proud"}
    models = [
        ProUD(**proud).fit(root / "central", unlabeled=[root / "north"], labels=given)
        for given in (some, tmp_path / "extra.csv")
    ]
    assert same_network(*models)
    assert models[0].pseudo_labels_["north"]["label"][0] == some["label"].iloc[0]
    with pytest.raises(UserError, match="labels must be a CSV file or DataFrame with the columns path, domain, label"):
        ProUD(**proud).fit(root / "central", unlabeled=[root / "north"], labels={"a": 1})


@pytest.mark.parametrize(
    ("labeled", "message"),
    [
        (
            lambda root: 7,
            "labeled is 'int'; it must be one of: a folder; a list of image files; a CSV file or DataFrame",
        ),
        (lambda root: files(root, "central")[0], "labeled must have labels: a folder of class folders, a pair"),
        (lambda root: frame(root, "central", "north"), "several domains: central, north"),
        (lambda root: frame(root, "central").drop(columns="path"), "a column `path`"),
        (
            lambda root: frame(root, "central").replace({"label": {"plain": None}}),
            "3 rows of the table of labeled have no",
        ),
        (lambda root: (["gone.png"], ["a"]), r"gone.png: no such file \(1 of 1 are missing\)"),
        (
            lambda root: Pairs(root, "central", lambda image: torch.rand(3, 4, 4)),
            "leave out transforms such as ToTensor",
        ),
        (lambda root: Endless(), "without a length"),
        (lambda root: {"a": 1, "b": 2}, "labeled must be one site"),
        (lambda root: (files(root, "central")[0] * 2, files(root, "central")[1] * 2), "is given twice in 'labeled'"),
    ],
)
def test_errors_name_the_forms(labeled: Callable[[Path], Any], message: str, root: Path) -> None:
    with pytest.raises(UserError, match=message):
        ProUD(**ERM).fit(labeled(root), unlabeled=[root / "north"])


def test_other_domains_are_not_taken_for_labels(root: Path) -> None:
    for labeled in (root / "central", toy_images(0, 2)):
        with pytest.raises(UserError, match=r"y goes with images that have no labels; .* unlabeled=\[...\]"):
            ProUD(**ERM).fit(labeled, [root / "north"])


def test_groups_and_splits_of_a_table_hold(root: Path) -> None:
    paths, labels = files(root, "central")
    rows = {"path": paths, "label": labels, "group": [f"patient {number % 3}" for number in range(len(paths))]}
    domain = catalog_of(pandas.DataFrame(rows), [root / "north"]).catalog.domains["labeled"]
    assert {entry.group for entry in domain.entries} == {"patient 0", "patient 1", "patient 2"}
    split = ["val" if number % 3 == 0 else "train" for number in range(len(paths))]
    table = pandas.DataFrame(rows | {"split": split})
    fitted = ProUD(**ERM).fit(table, unlabeled=[root / "north"])
    assert fitted.result_["val_interval"] and fitted.model_.trust.images == split.count("val")
    assert len(fitted.predict(table)) == len(paths)
    with pytest.raises(UserError, match="The column split of labeled has test"):
        catalog_of(table.assign(split="test"), [root / "north"])
    with pytest.raises(UserError, match="Some rows of labeled state a split and some do not"):
        catalog_of(table.assign(split=["val", *[None] * (len(paths) - 1)]), [root / "north"])
    named = pandas.DataFrame({"path": paths, "domain": ["x", "y"] * (len(paths) // 2), "group": rows["group"]})
    assert all(
        entry.group for name in "xy" for entry in catalog_of((paths, labels), named).catalog.domains[name].entries
    )


def test_a_hub_dataset_of_several_splits_is_refused(root: Path) -> None:
    datasets = pytest.importorskip("datasets")
    with pytest.raises(UserError, match=r"several splits: pass one of them, such as labeled\['train'\]"):
        ProUD(**ERM).fit(datasets.DatasetDict(train=hub(root, "central")))


def test_source_only_methods_need_no_other_site(root: Path) -> None:
    assert ProUD(**ERM).fit(root / "central").pseudo_labels_ == {}


def test_pickles_and_clones(fitted: ProUD, root: Path) -> None:
    from sklearn.base import clone

    again = pickle.loads(pickle.dumps(fitted))
    assert same_network(fitted, again) and again.classes_.tolist() == fitted.classes_.tolist()
    assert again.get_params() == fitted.get_params() and again.result_ == fitted.result_
    np.testing.assert_array_equal(again.predict_proba(root / "west"), fitted.predict_proba(root / "west"))
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params() and not hasattr(fresh, "model_")


def test_the_text_says_what_it_is(fitted: ProUD) -> None:
    text = repr(fitted)
    assert text.startswith("ProUD(method='erm', epochs=1, ") and " fitted to 4 classes (across, checks, " in text
    assert ": digits for 16 × 16 pixels, " in text and text.endswith(" % right on validation images")


def test_a_loaded_one_has_a_text_too(fitted: ProUD, tmp_path: Path) -> None:
    fitted.save(tmp_path / "mine")
    assert repr(ProUD.from_pretrained(tmp_path / "mine", device="cpu")).endswith(": digits for 16 × 16 pixels")


def test_the_choice_for_a_cpu_is_shown(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = {key: value for key, value in ERM.items() if key != "batch_size"} | {
        "model": "resnet10t",
        "weights": "none",
    }
    ProUD(**small | {"pretrain_epochs": 0, "verbose": True, "size": 32, "out": tmp_path / "run"}).fit(root / "central")
    assert "Chosen for a CPU: --batch-size 32" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["method_config"]["batch_size"] == 32


def test_threads_of_predictions(fitted: ProUD, root: Path) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    model = pickle.loads(pickle.dumps(fitted)).set_params(threads=before + 1)
    model.model_.net.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    model.predict(root / "west")
    assert set(seen) == {before + 1} and torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["__init__", "fit", "predict", "predict_proba", "predict_table", "score", "save"])
def test_methods_are_documented(name: str) -> None:
    method = getattr(ProUD, name)
    text = inspect.getdoc(method) or ""
    assert "Args:" in text and "Example:" in text
    for parameter in inspect.signature(method).parameters:
        assert parameter == "self" or f"{parameter}: " in text, parameter
