"""Figures from synthetic arrays: many classes, unsafe names, deterministic files, t-SNE of edge cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proud.report.figures.evaluation import confusion, confusion_chart, most_confused, reliability_chart
from proud.report.figures.maps import collect, embed, feature_maps
from proud.report.figures.style import DARK, LIGHT, chart_files, class_colors, clean_label, panel_png
from proud.report.sources import RunSource


def synthetic_run(classes: int, **config: Any) -> RunSource:
    """A run with outputs and one snapshot, not on disk."""
    random = np.random.default_rng(0)
    settings = {"labeled": "here", "test": "there", "data": "x", "seed": 1, "method": "proud"} | config
    settings["method_config"] = {"epochs": 1} | config.get("method_config", {})
    domains = {name: {"role": role, "images": 9} for name, role in (("here", "labeled"), ("site", "unlabeled"))}
    names = [f"class ${place}_<b>" for place in range(classes)]
    metadata = {"config": settings, "task": {"classes": names, "domains": domains}}
    run = RunSource(Path("nowhere"), metadata, "synthetic")
    labels = np.arange(4 * classes) % classes
    logits = random.normal(size=(len(labels), classes)).astype(np.float32)
    snapshot = {"method/merged": random.normal(size=(classes, 16)), "method/present/site": np.ones(classes)}
    snapshot |= {"method/prototypes/site": random.normal(size=(classes, 16)), "labeled/labels": labels}
    for key in ("labeled", "unlabeled/site"):
        snapshot |= {f"{key}/features": random.normal(size=(len(labels), 16)), f"{key}/logits": logits}
    run.__dict__["outputs"] = {"test/logits": logits, "test/labels": labels}
    run.__dict__["snapshots"] = {"last": snapshot}
    run.__dict__["records"] = [{"stage": "main", "epoch": 1, "losses": {"loss": 1.0}}]
    return run


@pytest.fixture(autouse=True)
def _few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proud.report.figures.style.FILE_DPI", 50)


@pytest.mark.parametrize("classes", [2, 65])
def test_any_number_of_classes(classes: int) -> None:
    run = synthetic_run(classes)
    charts = [feature_maps([run], "map"), confusion_chart(run, "confusion"), reliability_chart(run, "reliability")]
    for chart in charts:
        assert chart is not None
        assert panel_png(chart.panels[0], DARK, dpi=40) != panel_png(chart.panels[0], LIGHT, dpi=40)
        files = chart_files(chart)
        assert files["png"].startswith(b"\x89PNG") and files["pdf"].startswith(b"%PDF")


@pytest.mark.parametrize("classes", [2, 10, 11, 65])
def test_every_class_has_its_own_colour(classes: int) -> None:
    assert len(set(class_colors(classes))) == classes


def test_equal_data_gives_equal_files() -> None:
    first, second = (reliability_chart(synthetic_run(4), "r") for _ in range(2))
    assert first is not None and second is not None
    assert chart_files(first) == chart_files(second)


def test_confusion_counts() -> None:
    run = synthetic_run(3)
    run.__dict__["outputs"] = {
        "test/logits": np.eye(3, dtype=np.float32)[[0, 0, 1, 2, 2, 2]],
        "test/labels": np.array([0, 0, 0, 2, 2, 1]),
    }
    counts = confusion(run, "test")
    assert counts.tolist() == [[2, 1, 0], [0, 0, 1], [0, 0, 2]]
    rows = most_confused(counts, ["a", "b", "c"])
    assert rows == [["a", "b", "1", "33.3 %"], ["b", "c", "1", "100.0 %"]]


def test_maps_contain_points_and_prototypes() -> None:
    run = synthetic_run(5)
    points = collect(run, run.snapshots["last"])
    assert points.prototype.sum() == 3 * 5  # here, site, merged
    assert len(points.features) == 2 * 20 + 3 * 5
    assert np.allclose(np.linalg.norm(points.features, axis=1), 1)
    del run.snapshots["last"]["method/merged"]
    assert not collect(run, run.snapshots["last"]).prototype.any()


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (6, 2), (40, 3)])
def test_few_or_equal_points_can_be_embedded(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(1).normal(size=shape)
    for features in (random, np.ones(shape)):
        positions = embed(features)
        assert positions.shape == (shape[0], 2)
        assert np.isfinite(positions).all()
    assert np.array_equal(embed(random), embed(random))


def test_names_fit_into_figures() -> None:
    assert clean_label("_hidden") == " _hidden"
    assert clean_label("a\nb\tc\x00d") == "a b c d"
    assert len(clean_label("x" * 100)) == 22
