"""Names of classes and domains are the same in both Unicode spellings, composed and decomposed (macOS)."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from trees import pixels, task_of, write_image

from proud import ProUD
from proud.bench.plan import parse_combos
from proud.config import RunConfig
from proud.data.benchmarks import benchmark_catalog
from proud.data.csv_table import read_labels, scan_csv
from proud.data.folder import nested_classes, scan_folder
from proud.data.labels import add_labels
from proud.errors import UserError
from proud.model.load import read_classes
from toy import task_from

COMPOSED = {name: unicodedata.normalize("NFC", name) for name in ("café", "über", "Köln", "Zürich")}
APART = {name: unicodedata.normalize("NFD", name) for name in COMPOSED}


def two_sites(root: Path) -> Path:
    """Köln has folders as from macOS, Zürich as from elsewhere."""
    for seed, (site, names) in enumerate((("Köln", APART), ("Zürich", COMPOSED))):
        for number, label in enumerate(("café", "über")):
            for place in range(3):
                write_image(root / names[site] / names[label] / f"{place}.png", 100 * seed + 10 * number + place)
    return root


@pytest.mark.parametrize("typed", [COMPOSED, APART])
def test_folders(typed: dict[str, str], tmp_path: Path) -> None:
    catalog = scan_folder(two_sites(tmp_path))
    task = task_of(catalog, labeled=typed["Zürich"], unlabeled=(typed["Köln"],), seed=1)
    assert task.training.classes == (COMPOSED["café"], COMPOSED["über"])
    assert task.report["domains"][COMPOSED["Köln"]]["audited"] == 6
    for entry in catalog.domains[COMPOSED["Köln"]].entries:
        assert (tmp_path / entry.location).is_file()
    with pytest.raises(UserError, match="is the labeled domain and cannot be an unlabeled one too"):
        task_of(catalog, labeled=COMPOSED["Köln"], unlabeled=(APART["Köln"],), seed=1)


def test_a_level_above_the_classes(tmp_path: Path) -> None:
    for number, names in enumerate((APART, COMPOSED)):
        for label in ("café", "über"):
            write_image(tmp_path / "central" / names[("Köln", "Zürich")[number]] / names[label] / "0.png", number)
    assert "each of them holds the same folders: café, über" in nested_classes(scan_folder(tmp_path).domains["central"])


def test_two_folders_of_one_name(tmp_path: Path) -> None:
    two_sites(tmp_path)
    if (tmp_path / APART["Zürich"]).exists():
        pytest.skip("this file system has one spelling only")
    (tmp_path / APART["Zürich"]).mkdir()
    with pytest.raises(
        UserError, match=f"Two folders of .* are named '{COMPOSED['Zürich']}', in two Unicode spellings"
    ):
        scan_folder(tmp_path)


def test_tables(tmp_path: Path) -> None:
    two_sites(tmp_path)
    lines = ["path,domain,label"]
    for place, path in enumerate(sorted(tmp_path.glob("*/*/*.png"))):
        inner = path.relative_to(tmp_path)
        names = APART if place % 2 else COMPOSED
        site, label = (names[unicodedata.normalize("NFC", part)] for part in inner.parts[:2])
        lines.append(f"{inner},{site},{label}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    catalog = scan_csv(tmp_path / "t.csv")
    assert {name: len(domain.entries) for name, domain in catalog.domains.items()} == {
        COMPOSED["Köln"]: 6,
        COMPOSED["Zürich"]: 6,
    }
    task = task_of(catalog, labeled=APART["Köln"], seed=1)
    assert task.training.classes == (COMPOSED["café"], COMPOSED["über"])


def test_tables_of_labels(tmp_path: Path) -> None:
    task = task_of(scan_folder(two_sites(tmp_path)), labeled=COMPOSED["Zürich"], seed=1)
    path = task.evaluation.audits[COMPOSED["Köln"]].paths[0]
    (tmp_path / "t.csv").write_text(f"path,domain,label\n{path},{APART['Köln']},{APART['über']}\n", encoding="utf-8")
    known = add_labels(task, read_labels(tmp_path / "t.csv"), "t.csv").training.unlabeled[0].known
    assert known is not None and known.tolist() == [1, -1, -1, -1, -1, -1]


def test_folders_and_arrays_in_python(tmp_path: Path) -> None:
    root = two_sites(tmp_path)
    task = task_from(root / COMPOSED["Zürich"], [root / APART["Köln"]], size=16)
    assert task.report["domains"][COMPOSED["Köln"]]["audited"] == 6
    images = np.stack([pixels(seed) for seed in range(4)])
    labels = [APART["café"], COMPOSED["café"], APART["über"], COMPOSED["über"]]
    task = task_from((images, labels), [np.stack([pixels(9)])], size=16, seed=1)
    assert task.training.classes == (COMPOSED["café"], COMPOSED["über"])


def test_labels_come_back_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"size": 16, "epochs": 1, "pretrain_epochs": 0, "batch_size": 4, "device": "cpu", "val": 0.0}
    images, labels = np.stack([pixels(seed) for seed in range(4)]), [APART["café"], APART["über"]] * 2
    model = ProUD(method="erm", **settings).fit(labeled=(images, labels), unlabeled=[np.stack([pixels(9), pixels(8)])])
    assert model.classes_.tolist() == labels[:2]
    monkeypatch.setattr(model, "predict", lambda images: np.array(labels))
    assert model.score(images, [COMPOSED["café"], APART["über"]] * 2) == 1


def test_benchmarks(tmp_path: Path) -> None:
    for seed, site in enumerate(("art", "clipart", "product", "real_world")):
        write_image(tmp_path / site / (APART if seed % 2 else COMPOSED)["café"] / "0.png", seed)
    domains = benchmark_catalog("office-home", tmp_path).domains.values()
    assert {entry.label for domain in domains for entry in domain.entries} == {COMPOSED["café"]}


def test_settings_and_stored_models() -> None:
    run = RunConfig(labeled=APART["Köln"], test=APART["Zürich"], unlabeled=(APART["café"],))
    assert (run.labeled, run.test, run.unlabeled) == (COMPOSED["Köln"], COMPOSED["Zürich"], (COMPOSED["café"],))
    combos = parse_combos(f"{APART['Köln']}:{APART['Zürich']}", [COMPOSED["Köln"], COMPOSED["Zürich"]])
    assert combos == [(COMPOSED["Köln"], COMPOSED["Zürich"])]
    assert read_classes([APART["über"], "plain"]) == (COMPOSED["über"], "plain")
