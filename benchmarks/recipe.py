"""The parts of `proud-plus`, one at a time: what each one changes on the development cells.

Usage: python benchmarks/recipe.py RESULTS.jsonl …   (rows of `explore.py --variants minus` or `plus`; prints a table)

A cell's score is the mean of its last three evaluations. Both data sets count alike.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from table_text import table

from proud.methods import method_config

PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "udmix": ({"udmix": False}, {"udmix": True}),
    "fair": ({"fair": False}, {"fair": True, "udmix": True}),
    "certain": ({"certain_weight": 0.0}, {"certain_weight": 1.0}),
    "center": ({"center": False}, {"center": True}),
    "classifier": ({"classifier": 0.0}, {"classifier": 0.5}),
    "balance": ({"balance": 0.0}, {"balance": 0.25}),
    "class_mix": ({"class_mix": "labeled"}, {"class_mix": "even"}),
    "merging": ({"alpha": 0.5, "pml_tau": 1.0}, {"alpha": 1.0, "pml_tau": 0.1}),
    "labeled": ({"labeled_weight": 0.0}, {"labeled_weight": 1.0}),
    "warp": ({"warp": 0.0}, {"warp": 0.5}),
    "outline": ({"outline": 0.0}, {"outline": 0.25}),
    "own_share": ({"own_share": 0.0}, {"own_share": 0.15}),
    "average": ({"ema_epochs": 0.0}, {"ema_epochs": 10.0}),
}
"""part -> its settings when off (merging: the paper's weight and temperature) and when on"""


def variants(which: str) -> list[dict[str, Any]]:
    """`minus`: the recipe, then with each part switched. `plus`: no part, then each alone. Otherwise a JSON file."""
    if which == "minus":
        recipe = asdict(method_config("proud-plus"))
        start = {"name": "proud-plus", "method": "proud-plus"}
        switched = {
            f"− {part}" if on.items() <= recipe.items() else f"+ {part}": off if on.items() <= recipe.items() else on
            for part, (off, on) in PARTS.items()
        }
    elif which == "plus":
        start = {"name": "no part", "method": "proud-plus"}
        start |= {name: value for off, _ in PARTS.values() for name, value in off.items()}
        switched = {f"+ {part}": on for part, (_, on) in PARTS.items()}
    else:
        found: list[dict[str, Any]] = json.loads(Path(which).read_text())
        return found
    return [start, *(start | {"name": name} | settings for name, settings in switched.items())]


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
    return table(["variant", *(cell for _, cell in cells), "gain", "lowest recall"], lines)


if __name__ == "__main__":
    print(comparison([json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]))
