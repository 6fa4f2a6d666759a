"""Tables about runs: data, scores, published results, calibration, sites and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from proud.data.benchmarks import find_benchmark
from proud.report.figures.evaluation import measured_sets
from proud.report.figures.pictures import ListedImage
from proud.report.formats import NOTHING, PlainTable, number
from proud.report.published import PUBLISHED, PublishedTable
from proud.report.reliability import measured, sites_of
from proud.report.sources import RunSource
from proud.text import valid_utf8
from proud.trust.diagnosis import LIMITS, Site, estimate_text, reasons
from proud.trust.intervals import Interval, accuracy_interval, paired_interval

ROLES = {
    "labeled": "labeled: trained on with labels",
    "unlabeled": "unlabeled: trained on without labels",
    "test": "unseen: for evaluation only",
}

VERDICTS = {"sound": "✓ sound", "cannot tell": "? cannot tell", "poor": "✗ poor"}


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def domain_tables(runs: Sequence[RunSource]) -> Iterator[PlainTable]:
    """One table for all runs on the same data."""
    groups: dict[str, list[RunSource]] = {}
    for run in runs:
        groups.setdefault(repr((run.domains, run.classes, run.config.data)), []).append(run)
    for group in groups.values():
        run = group[0]
        rows = [
            [name, ROLES.get(domain["role"], domain["role"]), f"{domain['images']:,}".replace(",", " ")]
            for name, domain in run.domains.items()
        ]
        skipped = len(run.metadata["task"]["skipped"])
        caption = (
            f"{', '.join(member.name for member in group)}. {len(run.classes)} classes: {_first_names(run.classes)}. "
            f"Network {run.metadata['model']['name']}, {run.metadata['model']['size']} px. "
            + (f"{skipped} unreadable images were skipped." if skipped else "")
        )
        yield PlainTable(f"Data: {run.config.data}", ["domain", "role", "images"], rows, caption.strip())


def _first_names(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def runs_table(runs: Sequence[RunSource]) -> PlainTable | None:
    if not runs:
        return None
    rows = []
    for run in runs:
        result = run.result
        first, last = result.get("domains_first", {}), result.get("domains_last", {})
        labels = ", ".join(
            f"{site} {percent(first[site]['accuracy'])} → {audited_accuracy(run, site)}"
            for site in last
            if "accuracy" in last[site] and "accuracy" in first.get(site, {})
        )
        rows.append(
            [
                run.name,
                *run.combination,
                accuracy_text(run, "test"),
                accuracy_text(run, "val"),
                labels or NOTHING,
                str(run.config.seed),
                f"{run.seconds / 60:.1f} min" if run.finished else "not finished",
            ]
        )
    heads = ["run", "labeled •", "unseen *", "accuracy on *", "validation of •", "pseudo-labels", "seed", "training"]
    caption = (
        "Accuracies are means over the last five epochs, with the 95 % interval for the n images they were measured on "
        "(not for the seed); pseudo-labels: accuracy at the first → last epoch."
    )
    return PlainTable("Runs", heads, rows, caption)


def images_of(run: RunSource, key: str) -> int:
    """How many images `val` or `test` has."""
    domain = run.domains.get(run.config.labeled if key == "val" else run.config.test)
    if domain is None:
        return 0
    return domain.get("validation", 0) if key == "val" else domain["images"]


def accuracy_text(run: RunSource, key: str) -> str:
    """The accuracy on `val` or `test`, with its interval."""
    value = run.result.get("val_accuracy") if key == "val" else run.result.get("test_accuracy")
    return percent(value) if value is None else str(accuracy_interval(value, images_of(run, key)) or percent(value))


def audited_accuracy(run: RunSource, site: str) -> Interval | None:
    """Accuracy of a site's last pseudo-labels, on its images with true labels."""
    last = run.result["domains_last"][site]
    return accuracy_interval(last["accuracy"], last.get("audited", run.domains[site]["images"]))


def comparison_table(runs: Sequence[RunSource]) -> PlainTable | None:
    """Differences of the final networks on the same images of the unseen domain."""
    rows = []
    for first, second in combinations(runs, 2):
        difference = paired_difference(first, second)
        if difference is not None:
            rows.append([first.name, second.name, first.combination[1], difference.difference])
    caption = (
        "Accuracy of the final networks on the same images of the unseen domain, first minus second, with the 95 % "
        "interval of the paired difference. An interval that contains 0 does not show which is better."
    )
    return PlainTable("Comparison of runs", ["run", "minus", "unseen *", "difference"], rows, caption) if rows else None


def paired_difference(first: RunSource, second: RunSource) -> Interval | None:
    """None unless both were tested on the same images."""
    pictures = [run.metadata["task"].get("content", {}).get(run.combination[1]) for run in (first, second)]
    if pictures[0] is None or pictures[0] != pictures[1] or first.classes != second.classes:
        return None
    if not all("test/labels" in run.outputs for run in (first, second)):
        return None
    right = [run.outputs["test/logits"].argmax(1) == run.outputs["test/labels"] for run in (first, second)]
    return paired_interval(int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum()), len(right[0]))


def published_table(runs: Sequence[RunSource]) -> Iterator[PlainTable]:
    """Our runs below the rows of the paper, for the combinations of these runs."""
    groups: dict[str, list[RunSource]] = {}
    for run in runs:
        name = benchmark_of(run)
        if name:
            groups.setdefault(name, []).append(run)
    for name, group in groups.items():
        published = PUBLISHED[name]
        combos = [combo for combo in published.combos if combo in {run.combination for run in group}]
        heads = [f"{published.domains[labeled]}•/{published.domains[test]}*" for labeled, test in combos]
        rows = [[f"{row.method} (published)", *_cells(published, row.cells, combos)] for row in published.rows]
        published_rows = len(rows)
        for run in group:
            score = run.result.get("test_accuracy")
            cells = [number(100 * score) if score and combo == run.combination else NOTHING for combo in combos]
            rows.append([f"{run.name} (ours, seed {run.config.seed})", *cells])
        caption = (
            "Accuracy in % on the unseen domain (*), labels from one domain (•). "
            "Ours: a single run each; published: means over runs."
        )
        ours = frozenset(range(published_rows, len(rows)))
        yield PlainTable(
            f"Comparison with published results: {published.title}", ["Method", *heads], rows, caption, ours
        )


def _cells(published: PublishedTable, values: Sequence[float], combos: Sequence[tuple[str, str]]) -> list[str]:
    by_combo = dict(zip(published.combos, values, strict=True))
    return [number(by_combo[combo]) for combo in combos]


def benchmark_of(run: RunSource) -> str:
    """Name of the published table for the run's benchmark and combination, or ''."""
    benchmark = find_benchmark(str(run.config.data))
    name = benchmark.name if benchmark and run.metadata["task"]["benchmark"] else ""  # not a folder of that name
    return name if name in PUBLISHED and run.combination in PUBLISHED[name].combos else ""


def calibration_table(runs: Sequence[RunSource]) -> PlainTable:
    """Calibration on the source and on the unseen domain."""
    rows = []
    for run in runs:
        for key, text in measured_sets(run):
            metrics = measured(run, key)
            size = metrics.get("set_size")
            images = len(run.outputs[f"{key}/labels"])
            cells = [str(accuracy_interval(metrics["accuracy"] or 0.0, images) or NOTHING)]
            cells += [percent(metrics.get(name)) for name in ("ece_before", "ece_after", "coverage")]
            cells += [NOTHING if size is None else f"{size:.2f}"]
            rows.append([run.name, text, *cells])
    heads = [
        "run",
        "measured on",
        "accuracy",
        "ECE",
        "ECE after scaling",
        "90 % sets cover",
        "classes in a set",
    ]
    caption = (
        "ECE: expected calibration error, 15 bins. Temperature and prediction sets are fitted on source validation: "
        "there is no guarantee on the unseen domain, only what is measured here. Accuracies are those of the final "
        "network, with 95 % intervals."
    )
    return PlainTable("Calibration and prediction sets", heads, rows, caption)


def site_tables(runs: Sequence[RunSource]) -> Iterator[PlainTable]:
    for run in runs:
        rows = []
        for site in sites_of(run):
            signals = [site.signals.get(name) for name in ("stability", "agreement", "class_shift", "prototype_shift")]
            numbers = [NOTHING if value is None else f"{value:.2f}" for value in signals]
            right = NOTHING if site.estimate is None else estimate_text(site.estimate)
            rows.append([site.name, VERDICTS[site.verdict], right, _reasons(site), *numbers])
        heads = ["site", "verdict", "pseudo-labels right (estimate)", "why"]
        heads += ["stability", "views agree", "class mix off", "prototypes off"]
        caption = (
            "Estimated from means over the last five epochs, without any true label of the site. Sound: the interval "
            f"lies above {100 * LIMITS.sound:.0f} %; poor: it lies below {100 * LIMITS.poor:.0f} %. Uncertain: ε above "
            f"half of its maximum, ln {len(run.classes)}."
        )
        yield PlainTable(f"Sites of {run.name}", heads, rows, caption)


def _reasons(site: Site) -> str:
    look = f"look at the {len(site.look_at)} images below; " if site.look_at and site.verdict != "sound" else ""
    return look + reasons(site.signals)


def look_at_tables(runs: Sequence[RunSource]) -> Iterator[tuple[PlainTable, list[ListedImage]]]:
    """The most uncertain images of sites that are not sound: as a table, and the images themselves."""
    for run in runs:
        for site in sites_of(run):
            if site.verdict != "sound" and site.look_at:
                rows = [[str(image["path"]), image["label"], f"{image['uncertainty']:.2f}"] for image in site.look_at]
                title = f"{run.name}: {len(rows)} images of {site.name} to look at"
                caption = "The most uncertain images; proud label-next selects those whose labels would help most."
                pictures = look_at_pictures(run, site.name, len(rows))
                listed = [
                    ListedImage(image, path, label, f"ε {doubt}")
                    for image, (path, label, doubt) in zip(pictures, rows, strict=True)
                ]
                yield PlainTable(title, ["image", "pseudo-label", "ε (nats)"], rows, caption), listed


def look_at_pictures(run: RunSource, site: str, count: int) -> list[np.ndarray | None]:
    """uint8 [3,H,W] each; None for those that the run did not keep."""
    kept = run.outputs.get(f"look_at/{valid_utf8(site)}/images", np.empty(0))
    usable = kept.dtype == np.uint8 and kept.ndim == 4 and kept.shape[1] == 3 and kept.size > 0
    pictures = list(kept[:count]) if usable else []
    return [*pictures, *[None] * (count - len(pictures))]


def settings_table(runs: Sequence[RunSource]) -> Iterator[PlainTable]:
    """All settings, one column per run, differing settings first."""
    columns = [_flat(run) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    differ = [name for name in names if len({column.get(name) for column in columns}) > 1]
    ordered = [*differ, *(name for name in names if name not in differ)]
    rows = [[name, *(column.get(name, NOTHING) for column in columns)] for name in ordered]
    caption = "Differing settings come first." if differ else ""
    yield PlainTable("All settings", ["setting", *(run.name for run in runs)], rows, caption)


def _flat(run: RunSource) -> dict[str, str]:
    settings: dict[str, Any] = run.metadata["config"] | run.settings
    settings.pop("method_config", None)
    environment = {name: run.metadata.get(name) for name in ("commit", "device", "threads")}
    versions = ", ".join(f"{name} {version}" for name, version in (run.metadata.get("versions") or {}).items())
    every = settings | environment | {"versions": versions, "folder": str(run.folder)}
    return {name.replace("_", " "): _text(value) for name, value in every.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or NOTHING
    return NOTHING if value in (None, "") else str(value)
