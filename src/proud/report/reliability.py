"""Calibration and site verdicts of a run, computed from its files by `proud.trust`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from proud.report.sources import RunSource
from proud.trust.calibration import Bin, probabilities, reliability
from proud.trust.diagnosis import Site, diagnose
from proud.trust.fitted import Trust, fit_trust, measure

if TYPE_CHECKING:
    from torch import Tensor


def outputs_of(run: RunSource, key: str) -> tuple[Tensor, Tensor]:
    """Logits and labels of `val` or `test`."""
    return torch.from_numpy(run.outputs[f"{key}/logits"]), torch.from_numpy(run.outputs[f"{key}/labels"])


@lru_cache(maxsize=32)  # used by the diagram, its caption and the table
def trust_of(run: RunSource) -> Trust | None:
    """Fitted on source validation or, after cross-validation, on all labeled images; None without either."""
    key = next((key for key in ("folds", "val") if len(run.outputs.get(f"{key}/labels", ()))), None)
    return None if key is None else fit_trust(*outputs_of(run, key))


def bins_of(run: RunSource, key: str, temperature: float = 1.0) -> list[Bin]:
    logits, labels = outputs_of(run, key)
    return reliability(probabilities(logits, temperature), labels)


def expected_calibration_error(bins: list[Bin]) -> float:
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.confidence - part.accuracy) for part in bins) / max(total, 1)


def measured(run: RunSource, key: str) -> dict[str, float | None]:
    """Accuracy, ECE before and after scaling, coverage and size of 90 % prediction sets, …"""
    trust = trust_of(run)
    if trust is not None:
        return measure(trust, *outputs_of(run, key))
    logits, labels = outputs_of(run, key)
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    return {"accuracy": accuracy, "ece_before": expected_calibration_error(bins_of(run, key))}


def sites_of(run: RunSource) -> list[Site]:
    """A verdict per unlabeled domain, from the records of the run, with the images to look at."""
    return diagnose(run.records, run.look_at, bool(run.config.start_from))
