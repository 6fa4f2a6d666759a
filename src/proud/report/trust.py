"""What `proud.trust` finds in a run's files, for the page; nothing where it cannot tell."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from proud.report.gather import Run
from proud.trust.calibration import Bin, probabilities, reliability
from proud.trust.diagnosis import Site, diagnose
from proud.trust.fitted import Trust, fit_trust, measure

if TYPE_CHECKING:
    from torch import Tensor


def outputs_of(run: Run, key: str) -> tuple[Tensor, Tensor]:
    """Logits and labels of `val` or `test`."""
    return torch.from_numpy(run.outputs[f"{key}/logits"]), torch.from_numpy(run.outputs[f"{key}/labels"])


@lru_cache(maxsize=32)  # asked for by the diagram, its caption and the table
def trust_of(run: Run) -> Trust | None:
    """Fitted on source validation; None for a run without it."""
    return fit_trust(*outputs_of(run, "val")) if len(run.outputs.get("val/labels", ())) else None


def bins_of(run: Run, key: str, temperature: float = 1.0) -> list[Bin]:
    logits, labels = outputs_of(run, key)
    return reliability(probabilities(logits, temperature), labels)


def expected_error(bins: list[Bin]) -> float:
    """ECE."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.confidence - part.accuracy) for part in bins) / max(total, 1)


def measured(run: Run, key: str) -> dict[str, float | None]:
    """What holds on this set: accuracy, ECE before and after scaling, coverage and size of 90 % sets, …"""
    trust = trust_of(run)
    if trust is not None:
        return measure(trust, *outputs_of(run, key))
    logits, labels = outputs_of(run, key)
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    return {"accuracy": accuracy, "ece_before": expected_error(bins_of(run, key))}


def sites_of(run: Run) -> list[Site]:
    """A verdict per unlabeled domain, from the run's records, and the images to look at."""
    return diagnose(run.records, run.to_look_at)
