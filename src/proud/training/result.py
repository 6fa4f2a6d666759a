"""The scores of a finished run, as in result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor

from proud.config import LAST_EPOCHS
from proud.stored import EpochRecord, ResultRecord
from proud.trust.calibration import probabilities
from proud.trust.intervals import accuracy_interval
from proud.trust.scores import scores
from proud.typed import as_record


def summary(records: list[EpochRecord]) -> ResultRecord:
    """Accuracies and recalls per class as means over the last five epochs; pseudo-labels at the start and the end."""
    result: dict[str, Any] = {"epochs": len(records)}
    last: Sequence[Mapping[str, Any]]
    last = [record for record in records[-LAST_EPOCHS:] if record["stage"] == records[-1]["stage"]]
    for name in ("val_accuracy", "test_accuracy"):
        values = [record[name] for record in last if name in record]
        if values:
            result[name] = fmean(values)
    for name in ("val_recall", "test_recall"):
        by_class = zip(*(record[name] for record in last if name in record), strict=True)
        means = [None if values[0] is None else fmean(values) for values in by_class]
        result |= {name: means} if means else {}
    labeled = [record["domains"] for record in records if "domains" in record]
    if labeled:
        result["domains_first"], result["domains_last"] = labeled[0], labeled[-1]
    return as_record(result, ResultRecord)


def intervals(result: dict[str, Any], images: dict[str, int]) -> dict[str, Any]:
    """The numbers of images behind the accuracies of `val` and `test`, and their 95 % intervals."""
    found: dict[str, Any] = {}
    for name, count in images.items():
        interval = accuracy_interval(result[f"{name}_accuracy"], count)
        if interval is not None:
            found |= {f"{name}_images": count, f"{name}_interval": [interval.low, interval.high]}
    return found


def balanced_scores(
    outputs: Mapping[str, tuple[Tensor, Tensor]], classes: Sequence[str], temperature: float
) -> dict[str, Any]:
    """Of the saved network on `val` and `test`, from their logits and labels."""
    parts = {name: outputs[name] for name in ("val", "test") if name in outputs}
    return {
        f"{name}_scores": scores(probabilities(logits, temperature), labels, classes).as_json()
        for name, (logits, labels) in parts.items()
    }
