"""Tables of classes: recall per class, and scores in which all classes count alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proud.report.formats import NOTHING, PlainTable
from proud.report.run_tables import images_of, percent
from proud.report.sources import RunSource
from proud.stored import ScoreRecord
from proud.trust.intervals import Interval, accuracy_interval

SCORES = {"balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1", "auroc": "macro AUROC"}
LOW_RECALL = 0.15
STARVED_MARK = "✗"


def scores_table(runs: Sequence[RunSource]) -> PlainTable | None:
    """Scores in which all classes count alike."""
    rows = []
    for run in runs:
        result: Mapping[str, Any] = run.result
        for key, title in (("val", f"validation of {run.combination[0]}"), ("test", run.combination[1])):
            if found := result.get(f"{key}_scores"):
                cells = [score_text(found[name], images_of(run, key)) for name in SCORES]
                rows.append([run.name, title, *cells, ", ".join(found["absent"]) or NOTHING])
    heads = ["run", "measured on", *SCORES.values(), "classes without images"]
    caption = (
        "Of the saved network, as means over the classes that have images: recall, F1, and the area under the ROC "
        "curve of each class against the rest; with 95 % intervals for the draw of the images."
    )
    return PlainTable("Scores in which all classes count alike", heads, rows, caption) if rows else None


def score_text(found: ScoreRecord | None, images: int) -> str:
    if found is None or found["interval"] is None:
        return percent(found and found["value"])
    low, high = found["interval"]
    return str(Interval(found["value"], low, high, images))


def recall_tables(runs: Sequence[RunSource]) -> Iterator[PlainTable]:
    """Recall per class of every run: a class that is never predicted shows at one look."""
    for run in runs:
        columns = recall_columns(run)
        if columns:
            counts = next(domain["per_class"] for domain in run.domains.values() if domain["role"] == "labeled")
            rows = [
                [name, str(counts.get(name, NOTHING)), *(cells[k] for cells in columns.values())]
                for k, name in enumerate(run.classes)
            ]
            caption = (
                "Validation and unseen domain: mean over the last five epochs. Pseudo-labels, where true labels are "
                f"known: first → last epoch. {STARVED_MARK} below {100 * LOW_RECALL:.0f} %."
            )
            yield PlainTable(f"Recall per class: {run.name}", ["class", "labeled images", *columns], rows, caption)


def recall_columns(run: RunSource) -> dict[str, list[str]]:
    result: Mapping[str, Any] = run.result
    found = {}
    for key, title in (("val_recall", f"validation of {run.combination[0]}"), ("test_recall", run.combination[1])):
        if key in result:
            counts = recall_counts(run, key)
            found[title] = [
                recall_text(value, counts.get(label, 0)) for value, label in zip(result[key], run.classes, strict=True)
            ]
    first, last = result.get("domains_first", {}), result.get("domains_last", {})
    for site in last:
        if "recall" in last[site] and "recall" in first.get(site, {}):
            pairs = zip(first[site]["recall"], last[site]["recall"], strict=True)
            found[f"pseudo-labels of {site}"] = [f"{percent(a)} → {recall_text(b)}" for a, b in pairs]
    return found


def recall_counts(run: RunSource, key: str) -> dict[str, int]:
    """Images per class of the validation images or the unseen domain."""
    domain = run.domains.get(run.config.labeled if key == "val_recall" else run.config.test)
    if domain is None:
        return {}
    return domain.get("validation_per_class", {}) if key == "val_recall" else domain.get("per_class", {})


def recall_text(value: float | None, images: int = 0) -> str:
    mark = f"{STARVED_MARK} " if value is not None and value < LOW_RECALL else ""
    return mark + (percent(value) if value is None else str(accuracy_interval(value, images) or percent(value)))
