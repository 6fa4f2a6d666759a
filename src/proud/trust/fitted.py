"""Calibration, prediction sets and abstention of a model, fitted on source validation and stored in model.json."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from proud import ops
from proud.errors import UserError
from proud.stored import TaskRecord, TrustRecord
from proud.trust.calibration import (
    MAX_TEMPERATURE,
    MIN_IMAGES,
    MIN_TEMPERATURE,
    calibration_error,
    fit_temperature,
    nll,
    probabilities,
)
from proud.trust.conformal import Score, conformal_quantile, coverage_and_size, prediction_sets, true_scores
from proud.trust.selective import answered_and_risk, fewest_answers, lowest_risk, risk_threshold

COVERAGES = tuple(range(50, 100))  # percent
RISKS = tuple(range(1, 31))  # percent
SCORES: tuple[Score, ...] = ("lac", "aps")
DEFAULT_RISK = 0.05


def check_coverage(coverage: float) -> int:
    """In percent, rounded up."""
    percent = math.ceil(round(100 * coverage, 6)) if math.isfinite(coverage) else 0
    if percent not in COVERAGES:
        raise UserError(f"--coverage {coverage} must lie between {COVERAGES[0] / 100} and {COVERAGES[-1] / 100}.")
    return percent


def check_risk(risk: float) -> int:
    """In percent, rounded down."""
    percent = math.floor(round(100 * risk, 6)) if math.isfinite(risk) else 0
    if not RISKS[0] <= percent < 100:
        raise UserError(f"--risk {risk} must lie between {RISKS[0] / 100} and 0.99.")
    return percent


@dataclass(frozen=True)
class Trust:
    """Prediction sets and abstention use the probabilities at T = 1, which are not fitted on the calibration images, so
    the guarantee on the source is exact. Reported confidences are temperature-scaled."""

    images: int  # source images used for the fit
    temperature: float
    quantiles: dict[Score, tuple[float, ...]]  # by COVERAGES
    thresholds: tuple[float | None, ...]  # by RISKS; None: no threshold guarantees this risk
    validation: dict[str, float | None] = field(default_factory=dict)  # metrics on these images
    folds: int = 0  # number of networks that judged these images in cross-validation; 0: the model itself did

    @property
    def fitted_on(self) -> str:
        if self.folds:
            return f"{self.images} labeled images, each judged by one of {self.folds} networks trained without it"
        return f"{self.images} validation images of the labeled domain"

    def quantile(self, coverage: float, score: Score = "lac") -> float:
        """Of the next whole percent."""
        return self.quantiles[score][COVERAGES.index(check_coverage(coverage))]

    def threshold(self, risk: float) -> float | None:
        """Of the whole percent below, at most the largest of RISKS."""
        return self.thresholds[RISKS.index(min(check_risk(risk), RISKS[-1]))]

    def lowest_risk(self) -> float | None:
        """The smallest risk that can be guaranteed."""
        risks = [risk / 100 for risk, threshold in zip(RISKS, self.thresholds, strict=True) if threshold is not None]
        return risks[0] if risks else None

    def calibration(self) -> str:
        """How the confidence was calibrated."""
        if self.images < MIN_IMAGES:
            return f"not calibrated (this needs {MIN_IMAGES} validation images, training had {self.images})"
        if self.temperature == 1:
            return f"not rescaled (no temperature fits the {self.fitted_on} better than T = 1)"
        return f"calibrated on {self.fitted_on} (T = {self.temperature:.2f})"

    def as_json(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "folds": self.folds,
            "temperature": self.temperature,
            "coverages_percent": [COVERAGES[0], COVERAGES[-1]],
            "quantiles": {
                score: [None if math.isinf(value) else value for value in values]
                for score, values in self.quantiles.items()
            },
            "risks_percent": [RISKS[0], RISKS[-1]],
            "thresholds": list(self.thresholds),
            "validation": self.validation,
        }


def fit_trust(logits: Tensor, labels: Tensor, folds: int = 0) -> Trust:
    """From the logits [N,K] and labels [N] of source validation, or of all labeled images out of their folds."""
    logits, labels = logits.double().cpu(), labels.cpu()
    probs = probabilities(logits)
    confidence, predicted = probs.max(1)
    quantiles: dict[Score, tuple[float, ...]] = {}
    for score in SCORES:
        scores = true_scores(probs, labels, score)
        quantiles[score] = tuple(conformal_quantile(scores, percent / 100) for percent in COVERAGES)
    thresholds = tuple(risk_threshold(confidence, predicted == labels, percent / 100) for percent in RISKS)
    trust = Trust(len(labels), fit_temperature(logits, labels), quantiles, thresholds)
    return replace(trust, validation=measure(trust, logits, labels), folds=folds)


def promises(images: int) -> str:
    """What so many validation images can and cannot promise, before training; '' if they suffice for the defaults."""
    risk, needed = lowest_risk(images), fewest_answers(DEFAULT_RISK)
    if images >= max(needed, MIN_IMAGES):
        return ""
    advice = "--folds 5 lets all labeled images count, at six times the training time; a larger --val also helps."
    if not images:
        return f"No validation images: confidence is not calibrated, no prediction sets, no abstention. {advice}"
    count = "1 validation image" if images == 1 else f"{images} validation images"
    calibrated = "" if images >= MIN_IMAGES else f"confidence is not calibrated (that needs {MIN_IMAGES}), "
    return (
        f"With {count}, {calibrated}prediction sets reach at most {100 * images / (images + 1):.0f} % coverage, and "
        f"abstention at best a risk of {100 * risk:.0f} % ({100 * DEFAULT_RISK:g} % needs {needed} images without an "
        f"error). {advice}"
    )


def promises_of(task: TaskRecord, folds: int) -> str:
    """`promises` of a run that is about to start; '' with folds, which promise more."""
    held = next(domain.get("validation", 0) for domain in task["domains"].values() if domain["role"] == "labeled")
    return "" if folds else promises(held)


def measure(
    trust: Trust, logits: Tensor, labels: Tensor, coverage: float = 0.9, risk: float = 0.05, score: Score = "lac"
) -> dict[str, float | None]:
    """Metrics on labeled images, regardless of the stated guarantee."""
    logits, labels = logits.double().cpu(), labels.cpu()
    raw, calibrated = probabilities(logits), probabilities(logits, trust.temperature)
    covered, size = coverage_and_size(prediction_sets(raw, trust.quantile(coverage, score), score), labels)
    confidence, predicted = raw.max(1)
    answered, wrong = answered_and_risk(confidence, predicted == labels, trust.threshold(risk))
    return {
        "accuracy": (predicted == labels).double().mean().item(),
        "nll_before": nll(logits, labels),
        "nll_after": nll(logits, labels, trust.temperature),
        "ece_before": calibration_error(raw, labels),
        "ece_after": calibration_error(calibrated, labels),
        "adaptive_ece_before": calibration_error(raw, labels, adaptive=True),
        "adaptive_ece_after": calibration_error(calibrated, labels, adaptive=True),
        "coverage": covered,
        "set_size": size,
        "answered": answered,
        "risk": wrong,
    }


def read_trust(stored: TrustRecord | None) -> Trust | None:
    """From model.json; None for a model trained without validation images."""
    if stored is None:
        return None
    quantiles: dict[Score, tuple[float, ...]] = {
        score: tuple(math.inf if value is None else value for value in stored["quantiles"].get(score, ()))
        for score in SCORES
    }
    complete = {len(values) for values in quantiles.values()} == {len(COVERAGES)}
    complete = complete and len(stored["thresholds"]) == len(RISKS)
    if not complete or not MIN_TEMPERATURE <= stored["temperature"] <= MAX_TEMPERATURE:
        raise ValueError("its calibration is damaged")
    thresholds, validation = tuple(stored["thresholds"]), stored.get("validation", {})
    about = stored["images"], stored["temperature"]
    return Trust(*about, quantiles, thresholds, validation, stored.get("folds", 0))


def to_prototypes(features: Tensor, stored: dict[str, Tensor], site: str) -> tuple[Tensor, Tensor, Tensor]:
    """Distances to the prototypes of a site. [N,d] -> [N,K], aligned features [N,d], present [K]."""
    unit = torch.nn.functional.normalize(features.float(), dim=1)
    aligned = unit - stored[f"center/{site}"]
    return ops.cosine_distance(aligned, stored[f"site/{site}"]), aligned, stored[f"present/{site}"]
