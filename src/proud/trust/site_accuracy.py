"""The accuracy of a site's pseudo-labels, estimated from label-free signals, with a 90 % interval.

A logistic regression on three signals. Its coefficients are in site_accuracy.json; benchmarks/site_accuracy.py fitted
them on sites of PACS and Digits-DG whose true labels are known. The interval is the estimate ± the 90 % quantile of the
errors on labeled domains that were left out of the fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SHARPEST = 0.02  # signals between 0 and 1 are kept so far away from both ends


@dataclass(frozen=True)
class Estimate:
    """Share of right pseudo-labels, with the ends of its 90 % interval."""

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Regression:
    """accuracy = σ(bias + Σ weights · (features - means) / scales), ± half_width."""

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    half_width: float

    def __call__(self, signals: Mapping[str, float], classes: int) -> Estimate:
        values = (TRANSFORMS[name](signals[name], classes) for name in self.features)
        parts = zip(values, self.means, self.scales, self.weights, strict=True)
        odds = self.bias + sum(weight * (value - mean) / scale for value, mean, scale, weight in parts)
        accuracy = 1 / (1 + math.exp(-odds))
        return Estimate(accuracy, max(0.0, accuracy - self.half_width), min(1.0, accuracy + self.half_width))


def logit(share: float, classes: int = 0) -> float:
    share = min(max(share, SHARPEST), 1 - SHARPEST)
    return math.log(share / (1 - share))


TRANSFORMS: dict[str, Callable[[float, int], float]] = {
    "stability": logit,
    "agreement": logit,
    "class_shift": lambda value, classes: value,
    "uncertain": lambda value, classes: value,
    "uncertainty": lambda value, classes: value / math.log(max(classes, 2)),
}

KINDS: dict[str, tuple[str, ...]] = {
    "renewed": ("stability", "class_shift", "uncertainty"),
    "first": ("agreement", "class_shift", "uncertainty"),
    "rounds": ("class_shift", "uncertain", "uncertainty"),
}
"""Signals by kind of pseudo-labels: renewed in every epoch, of a single epoch, or kept over several epochs (EID), where
stability says nothing."""


def kind_of(signals: Mapping[str, float]) -> str:
    if "agreement" not in signals:
        return "rounds"
    return "renewed" if "stability" in signals else "first"


def estimate(signals: Mapping[str, float], classes: int) -> Estimate | None:
    """None if a signal is missing, as in records of earlier versions."""
    kind = kind_of(signals)
    return regressions()[kind](signals, classes) if all(name in signals for name in KINDS[kind]) else None


@cache
def regressions() -> dict[str, Regression]:
    stored = json.loads((files("proud.trust") / "site_accuracy.json").read_text(encoding="utf-8"))
    return {name: read_regression(found) for name, found in stored["regressions"].items()}


def read_regression(stored: dict[str, Any]) -> Regression:
    lists = {name: tuple(stored[name]) for name in ("features", "means", "scales", "weights")}
    return Regression(**lists, bias=stored["bias"], half_width=stored["half_width"])
