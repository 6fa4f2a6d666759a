"""The tables of docs/guide/new-site.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from table_text import source, table

from proud.bench.plan import DEVELOPMENT

Row = dict[str, Any]
LOOKED_AT = frozenset.union(*DEVELOPMENT.values())
BATCHES = {"16": "16", "64": "64", "256": "256", "whole": "whole", "balanced": "whole, mean of the classes"}
BATCHES |= {"skewed": "1 : 10"}
METHODS = ("statistics", "t3a", "adapt", "both")
TARGETS = {"adapt-pacs.json": 1.5, "adapt-digits.json": 1.0}
LOWEST = -1.0


def sourced(name: str, result: Row) -> str:
    return f"\n{result['data']}.{source(name, result)}"


def adapt_table(name: str, result: Row) -> str:
    """Per method and size of the batch: the average over all combinations, and the lowest of them."""
    groups: dict[str, list[Row]] = {}
    for row in result["rows"]:
        groups.setdefault(row["method"], []).append(row)
    rows = []
    for method, mine in groups.items():
        for size, shown in BATCHES.items():
            found = [row[size] for row in mine if row.get(size)]
            if found:
                plain = fmean(each["plain"] for each in found)
                rows.append([method, shown, f"{plain:.1f}", *(average_gain(found, each) for each in METHODS)])
    header = ["method", "images together", "plain, %", "batch statistics", "T3A", "`--adapt`", "with batch statistics"]
    return table(header, rows) + targets(name, groups.get("proud-plus", [])) + sourced(name, result)


def targets(name: str, rows: list[Row]) -> str:
    """What was asked of `--adapt` with proud-plus before it was measured, and whether it is so."""
    if name not in TARGETS or not rows:
        return ""
    whole = [row["whole"]["adapt"] - row["whole"]["plain"] for row in rows]
    skew = fmean(row["skewed"]["adapt"] - row["skewed"]["plain"] for row in rows)
    others = [gain for row, gain in zip(rows, whole, strict=True) if (row["labeled"], row["test"]) not in LOOKED_AT]
    met = fmean(whole) >= TARGETS[name] and round(min(whole), 2) >= LOWEST
    verdicts = ["met" if is_so else "missed" for is_so in (met, skew >= LOWEST)]
    return (
        f"\nTargets for `proud-plus`: with the whole site at least {signed(TARGETS[name])} on average, no combination "
        f"below {signed(LOWEST)}: {verdicts[0]} ({signed(fmean(whole))}, lowest {signed(min(whole))}; without the "
        f"development cells {signed(fmean(others))}). At a skewed site not below {signed(LOWEST)}: {verdicts[1]} "
        f"({signed(skew)}).\n"
    )


def average_gain(found: list[dict[str, float]], method: str) -> str:
    gains = [each[method] - each["plain"] for each in found if method in each]
    return f"{signed(fmean(gains))} ({signed(min(gains))})" if gains else "–"


def adapt_cells_table(name: str, result: Row) -> str:
    """What adapting to the whole site adds in each combination."""
    cells: dict[tuple[str, str], dict[str, Row]] = {}
    for row in result["rows"]:
        cells.setdefault((row["labeled"], row["test"]), {})[row["method"]] = row["whole"]
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    rows = []
    for cell, found in sorted(cells.items()):
        shown = [
            f"{found[each]['plain']:.1f} {signed(found[each]['adapt'] - found[each]['plain'])}"
            if each in found
            else "–"
            for each in methods
        ]
        rows.append([" → ".join(cell) + " †" * (cell in LOOKED_AT), *shown])
    return table(["labeled → new site", *methods], rows) + sourced(name, result)


def variants_table(name: str, runs: list[Row]) -> str:
    """Mean gain of each method, and the lowest of `proud-plus`, for the choice and its neighbours."""
    variants = runs[0]["variants"]

    def gains(variant: Row | None, method: str) -> dict[str, list[float]]:
        """By data set; None: T3A."""
        found: dict[str, list[float]] = {}
        for run in runs:
            if run["method"] == method:
                own = run["t3a"] if variant is None else run["gains"][variants.index(variant)]
                found.setdefault(run["data"], []).extend(own)
        return found

    def mean(variant: Row | None, method: str) -> float:
        return fmean(map(fmean, gains(variant, method).values()))

    def lowest(variant: Row | None) -> float:
        return min(map(min, gains(variant, "proud-plus").values()))

    best = max((each for each in variants if lowest(each) >= LOWEST), key=lambda each: mean(each, "proud-plus"))
    changes = {"rounds": 2, "classifier": 1 / 3, "anchor": 4.0, "share": 2 / 3}
    shown: list[tuple[str, Row | None]] = [
        (f"chosen: {', '.join(f'{key} {short(value)}' for key, value in best.items())}", best),
        *((f"{key} {short(value)}", best | {key: value}) for key, value in changes.items()),
        *((f"center {which}", best | {"center": which}) for which in ("training", "none")),
        ("T3A", None),
    ]
    rows = []
    for title, variant in shown:
        means = [signed(mean(variant, method)) for method in ("proud-plus", "proud", "erm-noisemix")]
        rows.append([title, means[0], signed(lowest(variant)), *means[1:]])
    header = ["variant", "`proud-plus`", "its lowest gain", "`proud`", "`erm-noisemix`"]
    return f"{table(header, rows)}\nOf {len(variants)} variants. {source(name, runs[0]).lstrip()}"


def short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def time_table(name: str, result: Row) -> str:
    """What adapting costs beside plain prediction."""

    def row(title: str, key: str, digits: int = 0) -> list[str]:
        plain, adapted = (result[each][key] for each in ("plain", "adapted"))
        return [title, f"{plain:,.{digits}f}", f"{adapted:,.{digits}f}", f"{adapted / plain:.2f}"]

    rows = [
        row("CPU time, s", "cpu_s"),
        row("wall time, s", "wall_s"),
        row("CPU time per image, ms", "cpu_ms", 1),
        row("peak of the memory, MB", "peak_mb"),
    ]
    about = (
        f"\n{result['data']}: {result['images']:,} images of {result['size']} px, {result['network']}, "
        f"{result['threads']} of {result['cores']} cores for the network.\n"
    )
    return table(["", "`proud predict`", "with `--adapt`", "times"], rows) + about + source(name, result)


def compare_table(result: Row) -> str:

    def title(row: Row) -> str:
        first, second = row["first"], row["second"]
        return f"{first['labeled']} → {first['test']}: {first['method']} against {second['method']}"

    rows = [
        [
            title(row),
            f"{row['disagreements']} of {row['images']}",
            str(row["labels"]),
            f"{row['difference']:+.1f}",
            f"{row['mean_width']:.1f}",
            f"{100 * row['holds']:.1f} %",
            f"{100 * row['named']:.1f} %",
            f"{100 * row['wrong']:.1f} %",
        ]
        for row in result["rows"]
    ]
    header = [
        "site, models",
        "disagreements",
        "labels",
        "true difference, points",
        "mean width",
        "interval holds",
        "better one named",
        "worse one named",
    ]
    return table(header, rows) + f"\n{result['draws']:,} draws each. " + sourced("compare.json", result).lstrip()


def later_table(name: str, result: Row) -> str:
    def cell(found: Row) -> str:
        return f"{found['accuracy']:.1f} %, {found['seconds']:.0f} s"

    rows = [
        [row["cell"], row["added"], *(cell(row[key]) for key in ("without", "from_nothing", "from_model"))]
        for row in result["rows"]
    ]
    header = ["labeled:test", "added site", "without it", "all sites, from nothing", "`--from` and `--add`"]
    return table(header, rows) + sourced(name, result)


def pool_table(name: str, result: Row) -> str:
    rows = [
        [
            row["cell"],
            f"{row['true']['accuracy']:.1f} % ({len(row['sites'])})",
            f"{row['found']['accuracy']:.1f} % ({row['found']['sites']})",
            f"{row['one']['accuracy']:.1f} %",
            "–" if row["purity"] is None else f"{100 * row['purity']:.0f} %",
        ]
        for row in result["rows"]
    ]
    header = ["labeled:test", "true sites", "found sites", "one pool", "images in the site of most of their kind"]
    return table(header, rows) + sourced(name, result)
