"""All that a model knows about its own reliability, fitted on source validation once and kept in model.json."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from proud.errors import UserError
from proud.trust.calibration import (
    COLDEST,
    ENOUGH,
    HOTTEST,
    believed,
    calibration_error,
    fit_temperature,
    nll,
    probabilities,
)
from proud.trust.conformal import Score, conformal_quantile, coverage_and_size, prediction_sets, true_scores
from proud.trust.selective import answered_and_risk, risk_threshold

COVERAGES = tuple(range(50, 100))  # percent
RISKS = tuple(range(1, 31))  # percent
SCORES: tuple[Score, ...] = ("lac", "aps")


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
    """Sets and abstention use the probabilities at T = 1: nothing fitted on the calibration images enters their own
    calibration, so the guarantee on the source is exact. The confidence that people read is the calibrated one."""

    images: int  # source validation images that all this rests on
    temperature: float
    quantiles: dict[Score, tuple[float, ...]]  # by COVERAGES
    thresholds: tuple[float | None, ...]  # by RISKS; None: no threshold can promise this risk
    validation: dict[str, float | None] = field(default_factory=dict)  # the measured numbers on these images

    def quantile(self, coverage: float, score: Score = "lac") -> float:
        """Of the next full percent."""
        return self.quantiles[score][COVERAGES.index(check_coverage(coverage))]

    def threshold(self, risk: float) -> float | None:
        """Of the full percent below; above the largest one, that of the largest."""
        return self.thresholds[RISKS.index(min(check_risk(risk), RISKS[-1]))]

    def lowest_risk(self) -> float | None:
        """The smallest risk that can be promised at all."""
        found = [risk / 100 for risk, threshold in zip(RISKS, self.thresholds, strict=True) if threshold is not None]
        return found[0] if found else None

    def calibration(self) -> str:
        """What the confidence rests on, in words."""
        if self.images < ENOUGH:
            return f"not calibrated: that takes {ENOUGH} validation images, the training had {self.images}"
        if self.temperature == 1:
            return f"the network's own: its {self.images} validation images fit no temperature (T = 1)"
        return f"calibrated on {self.images} validation images of the labeled domain (T = {self.temperature:.2f})"

    def as_json(self) -> dict[str, Any]:
        return {
            "images": self.images,
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


def fit_trust(logits: Tensor, labels: Tensor) -> Trust:
    """From the logits [N,K] and labels [N] of source validation."""
    logits, labels = logits.double().cpu(), labels.cpu()
    probs = probabilities(logits)
    confidence, guess = probs.max(1)
    quantiles: dict[Score, tuple[float, ...]] = {}
    for score in SCORES:
        scores = true_scores(probs, labels, score)
        quantiles[score] = tuple(conformal_quantile(scores, percent / 100) for percent in COVERAGES)
    thresholds = tuple(risk_threshold(confidence, guess == labels, percent / 100) for percent in RISKS)
    trust = Trust(len(labels), fit_temperature(logits, labels), quantiles, thresholds)
    return Trust(trust.images, trust.temperature, quantiles, thresholds, measure(trust, logits, labels))


def measure(
    trust: Trust, logits: Tensor, labels: Tensor, coverage: float = 0.9, risk: float = 0.05, score: Score = "lac"
) -> dict[str, float | None]:
    """What holds on labeled images, whatever was promised."""
    logits, labels = logits.double().cpu(), labels.cpu()
    raw, calibrated = probabilities(logits), probabilities(logits, trust.temperature)
    covered, size = coverage_and_size(prediction_sets(raw, trust.quantile(coverage, score), score), labels)
    confidence, guess = raw.max(1)
    answered, wrong = answered_and_risk(confidence, guess == labels, trust.threshold(risk))
    return {
        "accuracy": (guess == labels).double().mean().item(),
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


def read_trust(stored: Any) -> Trust | None:
    """From model.json; None where it has none (older models, training without validation)."""
    if stored is None:
        return None
    quantiles: dict[Score, tuple[float, ...]] = {
        score: tuple(math.inf if value is None else float(value) for value in stored["quantiles"][score])
        for score in SCORES
    }
    thresholds = tuple(None if value is None else float(value) for value in stored["thresholds"])
    temperature = float(stored["temperature"])
    sizes = {len(values) for values in quantiles.values()}
    shares = [value for values in quantiles.values() for value in values if value != math.inf]
    shares += [value for value in thresholds if value is not None]
    whole = sizes == {len(COVERAGES)} and len(thresholds) == len(RISKS) and type(stored["images"]) is int
    if not whole or not COLDEST <= temperature <= HOTTEST or not all(-1e-6 <= share <= 1 + 1e-6 for share in shares):
        raise ValueError("its calibration is damaged")
    images = stored["images"]
    return Trust(images, believed(temperature, images), quantiles, thresholds, dict(stored.get("validation", {})))


def to_prototypes(features: Tensor, found: dict[str, Tensor], site: str = "") -> tuple[Tensor, Tensor, Tensor]:
    """Distances of new images to the merged prototypes or to a site's. [N,d] -> [N,K], [N,d] aligned features, [K]."""
    from proud import ops

    end = f"/{site}" if site else ""
    prototypes = found[f"site/{site}" if site else "merged"]
    present = found[f"present/{site}"] if site else prototypes.abs().sum(1) > 0
    unit = torch.nn.functional.normalize(features.float(), dim=1)
    aligned = unit - found[f"center{end}"]
    return ops.cosine_distance(aligned, prototypes), aligned, present


def uncertainty_to_prototypes(features: Tensor, found: dict[str, Tensor]) -> Tensor:
    """Eq. 5 for new images: entropy in nats over the merged prototypes. [N,d] -> [N]."""
    from proud import ops

    distances, _, present = to_prototypes(features, found)
    return ops.uncertainty(distances, found["tau"], present)
