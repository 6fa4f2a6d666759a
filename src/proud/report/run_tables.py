"""The tables about single runs: their data, scores, published neighbours, calibration and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proud.training.evaluator import audited_part
from proud.report.figures.trust import measured_sets
from proud.report.formats import NOTHING, PlainTable, number
from proud.report.gather import Run
from proud.report.published import PUBLISHED, PublishedTable
from proud.report.trust import measured, sites_of
from proud.trust.diagnosis import LIMITS, Site

ROLES = {
    "labeled": "labeled: trained on with its labels",
    "unlabeled": "unlabeled: trained on without labels",
    "test": "unseen: for measuring only",
}

VERDICTS = {"sound": "✓ sound", "doubtful": "? doubtful", "harmful": "✗ likely harmful"}


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f} %"


def domain_tables(runs: Sequence[Run]) -> Iterator[PlainTable]:
    """One table for all runs on the same images."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr((run.domains, run.classes, run.config["data"])), []).append(run)
    for group in groups.values():
        run = group[0]
        rows = [
            [name, ROLES.get(domain["role"], domain["role"]), f"{domain['images']:,}".replace(",", " ")]
            for name, domain in run.domains.items()
        ]
        skipped = len(run.about["task"].get("skipped", []))
        caption = (
            f"{', '.join(each.name for each in group)}. {len(run.classes)} classes: {_listed(run.classes)}. "
            f"Network {run.about['model']['name']}, {run.about['model']['size']} px. "
            + (f"{skipped} unreadable images were left out." if skipped else "")
        )
        yield PlainTable(f"Data: {run.config['data']}", ["domain", "role", "images"], rows, caption.strip())


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def runs_table(runs: Sequence[Run]) -> PlainTable | None:
    if not runs:
        return None
    rows = []
    for run in runs:
        result = run.result
        first, last = result.get("domains_first", {}), result.get("domains_last", {})
        labels = ", ".join(
            f"{site} {percent(first[site]['accuracy'])} → {percent(last[site]['accuracy'])}{audited(run, site)}"
            for site in last
            if "accuracy" in last[site] and "accuracy" in first.get(site, {})
        )
        rows.append(
            [
                run.name,
                *run.combination,
                percent(result.get("test_accuracy")),
                percent(result.get("val_accuracy")),
                labels or NOTHING,
                str(run.config["seed"]),
                f"{run.seconds / 60:.1f} min" if result else "not finished",
            ]
        )
    heads = ["run", "labeled •", "unseen *", "accuracy on *", "validation of •", "pseudo-labels", "seed", "training"]
    caption = "Accuracies are means over the last five epochs; pseudo-labels: accuracy at the first → last epoch."
    return PlainTable("Runs", heads, rows, caption)


def audited(run: Run, site: str) -> str:
    """How many of a site's images its pseudo-labels' accuracy is about, if not all."""
    return audited_part(run.result["domains_last"][site], run.domains[site]["images"])


def published_table(runs: Sequence[Run]) -> Iterator[PlainTable]:
    """Our runs below the paper's rows, for the combinations at hand."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        name = benchmark_of(run)
        if name:
            groups.setdefault(name, []).append(run)
    for name, group in groups.items():
        published = PUBLISHED[name]
        combos = [combo for combo in published.combos if combo in {run.combination for run in group}]
        heads = [f"{published.domains[labeled]}•/{published.domains[test]}*" for labeled, test in combos]
        rows = [[f"{row.method} (published)", *_cells(published, row.cells, combos)] for row in published.rows]
        theirs = len(rows)
        for run in group:
            score = run.result.get("test_accuracy")
            cells = [number(100 * score) if score and combo == run.combination else NOTHING for combo in combos]
            rows.append([f"{run.name} (ours, seed {run.config['seed']})", *cells])
        caption = (
            "Accuracy in % on the unseen domain (*), labels from one domain (•). One run each; the paper's are means."
        )
        ours = frozenset(range(theirs, len(rows)))
        yield PlainTable(f"Beside the published rows: {published.title}", ["Method", *heads], rows, caption, ours)


def _cells(published: PublishedTable, values: Sequence[float], combos: Sequence[tuple[str, str]]) -> list[str]:
    by_combo = dict(zip(published.combos, values, strict=True))
    return [number(by_combo[combo]) for combo in combos]


def benchmark_of(run: Run) -> str:
    from proud.data.layouts import find_benchmark

    known = find_benchmark(str(run.config["data"]))
    its_own = run.about["task"].get("benchmark", bool(run.config.get("root")))  # rather than a folder with its name
    name = known.name if known and its_own else ""
    return name if name in PUBLISHED and run.combination in PUBLISHED[name].combos else ""


def calibration_table(runs: Sequence[Run]) -> PlainTable:
    """What may be believed on the source, and what is left of it on the unseen domain."""
    rows = []
    for run in runs:
        for key, text in measured_sets(run):
            found = measured(run, key)
            size = found.get("set_size")
            cells = [percent(found.get(name)) for name in ("accuracy", "ece_before", "ece_after", "coverage")]
            cells += [NOTHING if size is None else f"{size:.2f}"]
            rows.append([run.name, text, str(len(run.outputs[f"{key}/labels"])), *cells])
    heads = [
        "run",
        "measured on",
        "images",
        "accuracy",
        "ECE",
        "ECE after scaling",
        "90 % sets cover",
        "classes in a set",
    ]
    caption = (
        "ECE: expected calibration error, 15 bins. Temperature and prediction sets are fitted on source validation: "
        "they promise nothing on the unseen domain; what holds there is measured here."
    )
    return PlainTable("Calibration and prediction sets", heads, rows, caption)


def site_tables(runs: Sequence[Run]) -> Iterator[PlainTable]:
    for run in runs:
        rows = []
        for site in sites_of(run):
            signals = [site.signals.get(name) for name in ("stability", "agreement", "class_shift", "prototype_shift")]
            numbers = [NOTHING if value is None else f"{value:.2f}" for value in signals]
            rows.append([site.name, VERDICTS[site.verdict], _reasons(site), f"{site.score:.2f}", *numbers])
        heads = ["site", "verdict", "why", "score", "stability", "views agree", "class mix off", "prototypes off"]
        caption = (
            "Means over the last five epochs. Score: the mean of stability, agreement and 1 − class mix off; sound "
            f"from {LIMITS.good:g} on, likely harmful below {LIMITS.harmful:g}. Uncertain: ε above half of its "
            f"maximum, ln {len(run.classes)}. None of this uses a true label of the site."
        )
        yield PlainTable(f"Sites of {run.name}", heads, rows, caption)


def _reasons(site: Site) -> str:
    """The verdict's text without what stands beside it anyway."""
    text = site.text.removeprefix(f"{site.name}: ")
    if site.verdict == "sound":
        return text
    look = f"look at the {len(site.look_at)} images below; " if site.look_at else ""
    return look + text.partition(" (")[2].removesuffix(")")


def look_at_tables(runs: Sequence[Run]) -> Iterator[PlainTable]:
    """The most doubtful images of sites that are not sound."""
    for run in runs:
        for site in sites_of(run):
            if site.verdict != "sound" and site.look_at:
                rows = [[str(each["path"]), each["label"], f"{each['uncertainty']:.2f}"] for each in site.look_at]
                title = f"{run.name}: {len(rows)} images of {site.name} to look at"
                caption = "The most uncertain ones; proud label-next chooses those whose labels would help most."
                yield PlainTable(title, ["image", "pseudo-label", "ε (nats)"], rows, caption)


def settings_table(runs: Sequence[Run]) -> Iterator[PlainTable]:
    """All settings, one column per run, those that differ first."""
    columns = [_flat(run) for run in runs]
    names = list(dict.fromkeys(name for column in columns for name in column))
    differ = [name for name in names if len({column.get(name) for column in columns}) > 1]
    ordered = [*differ, *(name for name in names if name not in differ)]
    rows = [[name, *(column.get(name, NOTHING) for column in columns)] for name in ordered]
    caption = "Those that differ come first." if differ else ""
    yield PlainTable("All settings", ["setting", *(run.name for run in runs)], rows, caption)


def _flat(run: Run) -> dict[str, str]:
    config = dict(run.config)
    settings: dict[str, Any] = config | config.pop("method_config", {})
    settings.pop("method_config", None)
    about = {name: run.about.get(name) for name in ("commit", "device", "threads")}
    versions = ", ".join(f"{name} {version}" for name, version in (run.about.get("versions") or {}).items())
    found = settings | about | {"versions": versions, "folder": str(run.folder)}
    return {name.replace("_", " "): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or NOTHING
    return NOTHING if value in (None, "") else str(value)
