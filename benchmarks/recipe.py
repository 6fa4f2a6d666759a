"""The parts of `proud-plus`: what each one changes on the development cells.

Usage: python benchmarks/recipe.py RESULTS.jsonl …   (rows of `explore.py`; prints tables)

`--variants minus` is the recipe and, one at a time, the recipe with a part switched. A cell's score is the mean of its
last three evaluations. Both data sets count alike. What does not earn 0.3 points on average goes.

Earlier rows are of a Plackett-Burman design (`screen`): twelve variants in which each of eleven parts is on in six, and
any two parts are on and off together equally often. The effect of a part is the mean over all variants with it, less
that over those without. A variant is named after its parts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from table_text import read, table

from proud.methods import method_config
from proud.methods.presets import preset

PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "UDMix of the paper": ({"udmix": False}, {"udmix": True}),
    "center": ({"center": False}, {"center": True}),
    "classifier": ({"classifier": 0.0}, {"classifier": 0.5}),
    "class_mix": ({"class_mix": "labeled"}, {"class_mix": "even"}),
    "merging loss": ({"pml": False}, {"pml": True}),
    "sharper merging": ({"alpha": 0.5, "pml_tau": 1.0}, {"alpha": 1.0, "pml_tau": 0.1}),
    "labeled": ({"labeled_weight": 0.0}, {"labeled_weight": 1.0}),
    "certain": ({"certain_weight": 0.0}, {"certain_weight": 1.0}),
    "strong": ({"strong": False}, {"strong": True}),
    "warp": ({"warp": 0.0}, {"warp": 0.5}),
    "outline": ({"outline": 0.0}, {"outline": 0.25}),
    "average": ({"ema_epochs": 0.0}, {"ema_epochs": 10.0}),
}
"""part -> its settings when off (sharper merging: the paper's weight and temperature) and when on"""


SHOWN = {
    "pacs": ["both - strong", "one", "both", "both + udmix", "classifier alone", "late", "late + style"],
    "digits": ["today + certain", "one", "both", "product", "spread 1", "spread 1 + style"],
}
"""rows of docs/results/findings.md, of each data set"""


def variants(which: str, data: str) -> list[dict[str, Any]]:
    """`minus`: the recipe for this data, then with each part switched. Otherwise a JSON file."""
    if which != "minus":
        found: list[dict[str, Any]] = json.loads(Path(which).read_text())
        return found
    recipe = asdict(method_config("proud-plus", **preset(data, method="proud-plus")))
    start = {"name": "proud-plus", "method": "proud-plus"}
    switched = {
        f"− {part}" if on.items() <= recipe.items() else f"+ {part}": off if on.items() <= recipe.items() else on
        for part, (off, on) in PARTS.items()
    }
    return [start, *(start | {"name": name} | settings for name, settings in switched.items())]


def complete(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the runs that the end of the time cut short."""
    lengths = {row["command"]: 0 for row in rows}
    for row in rows:
        lengths[row["command"]] = max(lengths[row["command"]], row["trail"][-1]["epoch"])
    return [row for row in rows if row["trail"][-1]["epoch"] == lengths[row["command"]]]


def score(row: dict[str, Any]) -> float:
    return fmean(look["test_accuracy"] for look in row["trail"][1:][-3:])


def worst_recall(row: dict[str, Any]) -> float:
    return min(recall for recall in row["trail"][-1]["test_recall"] if recall is not None)


def comparison(rows: list[dict[str, Any]]) -> str:
    """Scores per cell, the gain over the first variant, and the lowest recall of any class."""
    cells = list(dict.fromkeys((row["data"], row["cell"]) for row in rows))
    names = list(dict.fromkeys(row["variant"]["name"] for row in rows))
    found = {(row["data"], row["cell"], row["variant"]["name"]): row for row in rows}

    def gain(name: str) -> float | None:
        by_set: dict[str, list[float]] = {}
        for cell in cells:
            if (*cell, name) in found and (*cell, names[0]) in found:
                by_set.setdefault(cell[0], []).append(score(found[*cell, name]) - score(found[*cell, names[0]]))
        return fmean(map(fmean, by_set.values())) if by_set else None

    lines = []
    for name in names:
        here = [found.get((*cell, name)) for cell in cells]
        change = gain(name)
        lines.append([name, *("–" if row is None else f"{score(row):.1f}" for row in here)])
        lines[-1].append("–" if change is None else f"{change:+.1f}")
        lines[-1].append(f"{min(worst_recall(row) for row in here if row is not None):.0f}")
    return table(["variant", *(arrow(cell) for _, cell in cells), "mean gain", "lowest recall"], lines)


def effects(rows: list[dict[str, Any]]) -> str:
    """Of each screened part: the mean score with it less the mean score without it, and the same of lowest recalls.

    Only cells in which all variants ran to their end."""
    every = {row["variant"]["name"] for row in rows}
    names = [(row["data"], row["cell"]) for row in rows]
    cells = [cell for cell in dict.fromkeys(names) if names.count(cell) == len(every)]
    lines = []
    for part in sorted({part for row in rows for part in row["variant"]["name"].split()} - {"none"}):
        changes: dict[tuple[str, str], list[float]] = {}
        for cell in cells:
            here = [row for row in rows if (row["data"], row["cell"]) == cell]
            on = [row for row in here if part in row["variant"]["name"].split()]
            off = [row for row in here if row not in on]
            changes[cell] = [fmean(map(of, on)) - fmean(map(of, off)) for of in (score, worst_recall)]
        sets = {data: fmean(changes[cell][0] for cell in cells if cell[0] == data) for data, _ in cells}
        lowest = fmean(change[1] for change in changes.values())
        numbers = [f"{value:+.1f}" for value in (*(changes[cell][0] for cell in cells), fmean(sets.values()))]
        lines.append([f"`{part}`", *numbers, f"{lowest:+.0f}"])
    return table(["part", *(arrow(cell) for _, cell in cells), "mean of both sets", "lowest recall"], lines)


def arrow(cell: str) -> str:
    return cell.replace("_painting", "").replace(":", " → ")


def screen_table() -> str:
    rows = complete([row for data in ("pacs", "digits") for row in read(f"recipe/screen-{data}.jsonl")])
    return effects(rows) + sources("screen", rows)


def labels_table() -> str:
    """Of the variants that lead to the recipe: the mean gain over the first one, and the lowest recall of any class."""
    parts, every = [], []
    for data, names in SHOWN.items():
        rows = complete(read(f"recipe/labels-{data}.jsonl"))
        lines = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in comparison(rows).splitlines()[2:]]
        parts += [[data, name, *line[-2:]] for name in names for line in lines if line[0] == name]
        every += rows
    return table(["data", "variant", "mean gain", "lowest recall"], parts) + sources("labels", every)


def few_table() -> str:
    """Least numbers of steps of an epoch, where few images have labels."""
    rows = complete(read("recipe/few-digits.jsonl"))
    return comparison(rows) + sources("few", rows)


def sources(name: str, rows: list[dict[str, Any]]) -> str:
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    (device,) = {row["device"] for row in rows}
    return f"\n`benchmarks/results/recipe/{name}-*.jsonl` · commit {commits} · {device}\n"


def main(names: list[str]) -> None:
    rows = [json.loads(line) for name in names for line in Path(name).read_text().splitlines()]
    print(comparison(complete(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
