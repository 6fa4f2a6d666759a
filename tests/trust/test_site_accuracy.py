"""The estimate of a site's pseudo-label accuracy: by hand, its direction, and its coefficients."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from pathlib import Path

import pytest

from proud.trust.site_accuracy import KINDS, Regression, estimate, kind_of, regressions

SIGNALS = {"stability": 0.9, "agreement": 0.9, "class_shift": 0.1, "uncertain": 0.2}
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def test_by_hand() -> None:
    model = Regression(
        ("stability", "class_shift", "uncertain"), (1.0, 0.2, 0.3), (2.0, 0.1, 0.5), (0.5, -1.0, -2.0), 0.1, 0.2
    )
    values = (math.log(0.9 / 0.1), 0.1, 0.2)
    odds = 0.1 + 0.5 * (values[0] - 1) / 2 - (values[1] - 0.2) / 0.1 - 2 * (values[2] - 0.3) / 0.5
    found = model(SIGNALS)
    assert found.accuracy == pytest.approx(1 / (1 + math.exp(-odds)))
    assert found.low == pytest.approx(found.accuracy - 0.2) and found.high == pytest.approx(
        min(1, found.accuracy + 0.2)
    )


def test_kinds_of_pseudo_labels() -> None:
    assert kind_of(SIGNALS) == "renewed"
    assert kind_of({name: value for name, value in SIGNALS.items() if name != "stability"}) == "first"
    assert kind_of({"stability": 1.0, "class_shift": 0.1}) == "rounds"
    assert estimate({"stability": 1.0, "class_shift": 0.1}) is None
    assert set(regressions()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_better_signals_raise_the_estimate(kind: str) -> None:
    model = regressions()[kind]
    assert model.features == KINDS[kind] and 0.05 < model.half_width < 0.5
    before = model(SIGNALS).accuracy
    assert model(SIGNALS | {"class_shift": 0.4}).accuracy < before
    better = {"renewed": {"stability": 0.99}, "first": {"agreement": 0.99}, "rounds": {"stability": 0.99}}[kind]
    assert model(SIGNALS | better).accuracy > before


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_the_ends_of_the_signals_have_an_estimate(extreme: float) -> None:
    found = estimate(dict.fromkeys(SIGNALS, extreme))
    assert found is not None and 0 <= found.low <= found.accuracy <= found.high <= 1


def test_the_coefficients_are_those_of_the_results() -> None:
    stored = json.loads((files("proud.trust") / "site_accuracy.json").read_text())
    results = json.loads((RESULTS / "site_accuracy.json").read_text())
    assert stored["regressions"] == results["regressions"]
    assert {"command", "commit", "versions", "data"} <= stored.keys()


def test_the_interval_holds_on_sites_that_were_left_out() -> None:
    tests = json.loads((RESULTS / "site_accuracy.json").read_text())["tests"]
    for name in ("labeled domain left out", "labeled domain left out, small runs", "whole data set left out"):
        assert tests[name]["holds"] >= 0.85, name
