"""The accuracy of a site's pseudo-labels, estimated from label-free signals, with a 90 % interval.

A logistic regression on three signals. Its coefficients are in site_accuracy.json; benchmarks/site_accuracy.py fitted
them on sites of PACS and Digits-DG whose true labels are known. The interval is the estimate ± the 90 % quantile of the
errors on labeled domains that were left out of the fit, of full-size or of small runs, whichever is larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from proud.stored import RegressionRecord, SiteAccuracyRecord
from proud.typed import parse_record

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

    def __call__(self, signals: Mapping[str, float]) -> Estimate:
        values = (feature(name, signals[name]) for name in self.features)
        parts = zip(values, self.means, self.scales, self.weights, strict=True)
        odds = self.bias + sum(weight * (value - mean) / scale for value, mean, scale, weight in parts)
        accuracy = 1 / (1 + math.exp(-odds))
        return Estimate(accuracy, max(0.0, accuracy - self.half_width), min(1.0, accuracy + self.half_width))


def logit(share: float) -> float:
    share = min(max(share, SHARPEST), 1 - SHARPEST)
    return math.log(share / (1 - share))


def feature(name: str, value: float) -> float:
    """What enters the regression for a signal."""
    return logit(value) if name in ("stability", "agreement") else value


KINDS: dict[str, tuple[str, ...]] = {
    "renewed": ("stability", "class_shift", "uncertain"),
    "first": ("agreement", "class_shift", "uncertain"),
    "rounds": ("stability", "class_shift", "uncertain"),
}
"""Signals by kind of pseudo-labels: renewed in every epoch, of a single epoch, or kept over several epochs (EID)."""


def kind_of(signals: Mapping[str, float]) -> str:
    if "agreement" not in signals:
        return "rounds"
    return "renewed" if "stability" in signals else "first"


def estimate(signals: Mapping[str, float]) -> Estimate | None:
    """None if a signal is missing, as in the first epoch of pseudo-labels without views."""
    kind = kind_of(signals)
    return regressions()[kind](signals) if all(name in signals for name in KINDS[kind]) else None


@cache
def regressions() -> dict[str, Regression]:
    stored = parse_record((files("proud.trust") / "site_accuracy.json").read_bytes(), SiteAccuracyRecord)
    return {name: read_regression(found) for name, found in stored["regressions"].items()}


def read_regression(stored: RegressionRecord) -> Regression:
    means, scales, weights = (tuple(each) for each in (stored["means"], stored["scales"], stored["weights"]))
    return Regression(tuple(stored["features"]), means, scales, weights, stored["bias"], stored["half_width"])
