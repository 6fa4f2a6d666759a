"""Scores of methods on real sites, from results.jsonl of benches; shared by `benchmarks/real_sites_tables.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, stdev
from typing import Any

from table_text import RESULTS, read, table

from proud.bench.scores import balanced_accuracy
from proud.trust.intervals import accuracy_interval, signed

CENTRAL = "barcelona"  # the laboratory that has the labels
BASE, OURS = "erm-noisemix", "proud-plus"
SPECIAL = {"wbc": "", "wbc-microscopy": "`--preset microscopy`", "wbc-lite2": "lite2"}
SPECIAL |= {"rsscn7": "", "rsscn7-aerial": "`--preset aerial`", "rsscn7-lite2": "lite2"}
"""results file → what is special about its runs"""

Row = dict[str, Any]
Score = Callable[[Row], float | None]
Cells = dict[tuple[str, str], dict[int, float]]
"""(labeled, test) → seed → percent"""


def accuracy(row: Row) -> float:
    return float(row["test_accuracy"])


def balanced(row: Row) -> float | None:
    return balanced_accuracy(row)  # type: ignore[arg-type]


def cells_of(rows: Iterable[Row], score: Score) -> Cells:
    found: Cells = {}
    for row in rows:
        if (value := score(row)) is not None:
            found.setdefault((row["labeled"], row["test"]), {})[row["seed"]] = 100 * value
    return found


def by_method(benches: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Rows by method, and by what is special about their bench."""
    found: dict[str, list[Row]] = {}
    for bench, rows in benches.items():
        for row in rows:
            found.setdefault(", ".join(filter(None, [row["method"], SPECIAL[bench]])), []).append(row)
    return found


def benches_of(data: str) -> dict[str, list[Row]]:
    names = [name for name in SPECIAL if name.partition("-")[0] == data]
    return {name: read(f"{name}.jsonl") for name in names if (RESULTS / f"{name}.jsonl").exists()}


def mean(cells: Cells, combos: Iterable[tuple[str, str]]) -> float | None:
    """Over combinations, of the means over seeds; None unless all are there."""
    wanted = list(combos)
    if not wanted or any(combo not in cells for combo in wanted):
        return None
    return fmean(fmean(cells[combo].values()) for combo in wanted)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def cell(values: dict[int, float] | None, images: int) -> str:
    """Over seeds; with a decimal only where so many images say something about it."""
    if not values:
        return "–"
    average = fmean(values.values())
    interval = accuracy_interval(average / 100, images)
    digits = 1 if interval is not None and interval.has_decimal else 0
    spread = f" ±{stdev(values.values()):.{digits}f}" if len(values) > 1 else ""
    return f"{average:.{digits}f}{spread}"


def methods_table(benches: dict[str, list[Row]], labeled: str, score: Score) -> str:
    """One row per method: the unseen sites with these labels, their mean, what it has over the base, and all others."""
    methods = by_method(benches)
    rows = [row for own in methods.values() for row in own]
    sites = [site for site in dict.fromkeys(name for row in rows for name in row["domains"]) if site != labeled]
    combos = [(labeled, site) for site in sites]
    others = [(one, other) for one in sites for other in [labeled, *sites] if one != other]
    base = mean(cells_of(methods.get(BASE, []), score), combos)
    images = {row["test"]: row["images"][row["test"]] for row in rows}
    lines = []
    for name, own in methods.items():
        cells = cells_of(own, score)
        average = mean(cells, combos)
        gain = "–" if average is None or base is None else signed(average - base)
        shown = [cell(cells.get(combo), images.get(combo[1], 0)) for combo in combos]
        lines.append([name, *shown, number(average), gain, number(mean(cells, others))])
    heads = [f"{site} ({images[site]})" if site in images else site for site in sites]
    return table(["method", *heads, "mean", f"over {BASE}", "mean of the other labeled sites"], lines)


def all_cells_table(benches: dict[str, list[Row]], score: Score) -> str:
    """One row per method: mean over all combinations, the lowest, and the gain over the base with its lowest cell."""
    methods = by_method(benches)
    combos = sorted({(row["labeled"], row["test"]) for rows in methods.values() for row in rows})
    base = cells_of(methods.get(BASE, []), score)
    lines = []
    for name, own in methods.items():
        cells = cells_of(own, score)
        gains = gains_over(cells, base)
        worst = min(cells, key=lambda combo: fmean(cells[combo].values()))
        lines.append(
            [
                name,
                number(mean(cells, combos)) if len(cells) == len(combos) else f"{len(cells)} of {len(combos)} measured",
                f"{fmean(cells[worst].values()):.1f} ({worst[0]} → {worst[1]})",
                "–" if not gains else signed(fmean(gains)),
                "–" if not gains else signed(min(gains)),
            ]
        )
    return table(["method", "mean", "lowest", f"over {BASE}", "the least gain"], lines)


def gains_over(cells: Cells, base: Cells) -> list[float]:
    return [fmean(cells[combo].values()) - fmean(base[combo].values()) for combo in cells.keys() & base.keys()]


def cells_by_method(data: str, score: Score) -> dict[str, Cells]:
    """Of the runs with the usual settings and network."""
    usual = by_method({data: benches_of(data).get(data, [])})
    return {name: cells_of(rows, score) for name, rows in usual.items()}


def gain(cells: dict[str, Cells], labeled: str = "", least: bool = False) -> float | None:
    """Of ours over the base."""
    if OURS not in cells or BASE not in cells:
        return None
    found = gains_over(of(cells[OURS], labeled), of(cells[BASE], labeled))
    return (min if least else fmean)(found) if found else None


def lead(cells: dict[str, Cells], labeled: str = "") -> float | None:
    """Of ours over the best other method that has the same combinations."""
    ours = of(cells.get(OURS, {}), labeled)
    others = [of(each, labeled) for name, each in cells.items() if name != OURS]
    same = [mean(each, ours) for each in others if ours and ours.keys() <= each.keys()]
    best = [value for value in same if value is not None]
    own = mean(ours, ours)
    return own - max(best) if best and own is not None else None


def of(cells: Cells, labeled: str) -> Cells:
    return {combo: values for combo, values in cells.items() if labeled in ("", combo[0])}
