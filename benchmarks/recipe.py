"""The parts of `proud-plus`: what each one changes on the development cells.

Usage: python benchmarks/recipe.py RESULTS.jsonl …   (rows of `explore.py`; prints tables)

`--variants screen` is a Plackett-Burman design: twelve variants in which each of eleven parts is on in six, and any two
parts are on and off together equally often. The effect of a part is the mean over all variants with it, less that over
those without. A cell's score is the mean of its last three evaluations. Both data sets count alike.

The rule of the choice: what has an effect of at least 0.3 points stays, the rest goes. Then the parts that are not
screened (forms of UDMix, cross-entropy on labeled images, weight average) are switched one at a time (`minus`).
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
    "strong": ({"strong": False}, {"strong": True}),
    "amplitude": ({"amplitude": 0.0}, {"amplitude": 1.0}),
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

SCREENED = (
    "own_share",
    "outline",
    "warp",
    "class_mix",
    "center",
    "classifier",
    "balance",
    "merging",
    "strong",
    "amplitude",
    "fair",
)
GENERATOR = (1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0)  # Plackett and Burman 1946, twelve runs
FIXED: dict[str, Any] = {"udmix": False, "certain_weight": 1.0}  # in all screened variants


def screen() -> list[dict[str, Any]]:
    """The design's rows: cyclic shifts of the generator, then one without any part."""
    shifts = [tuple(GENERATOR[(column - row) % 11] for column in range(11)) for row in range(11)]
    found = []
    for row in [*shifts, (0,) * 11]:
        settings: dict[str, Any] = {}
        for part, on in zip(SCREENED, row, strict=True):
            settings |= PARTS[part][on]
        on_parts = [part for part, on in zip(SCREENED, row, strict=True) if on]
        found.append({"name": " ".join(on_parts) or "none", "method": "proud-plus"} | settings | FIXED)
    return found


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
    elif which == "screen":
        return screen()
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


def effects(rows: list[dict[str, Any]]) -> str:
    """Of each screened part: the mean score with it less the mean score without it, and the same of lowest recalls."""
    cells = list(dict.fromkeys((row["data"], row["cell"]) for row in rows))
    lines = []
    for part in SCREENED:
        changes: dict[tuple[str, str], list[float]] = {}
        for cell in cells:
            here = [row for row in rows if (row["data"], row["cell"]) == cell]
            on = [row for row in here if part in row["variant"]["name"].split()]
            off = [row for row in here if row not in on]
            changes[cell] = [fmean(map(of, on)) - fmean(map(of, off)) for of in (score, worst_recall)]
        sets = {data: fmean(changes[cell][0] for cell in cells if cell[0] == data) for data, _ in cells}
        lowest = fmean(change[1] for change in changes.values())
        lines.append(
            [part, *(f"{changes[cell][0]:+.1f}" for cell in cells), f"{fmean(sets.values()):+.1f}", f"{lowest:+.0f}"]
        )
    return table(["part", *(cell for _, cell in cells), "effect", "lowest recall"], lines)


def main(names: list[str]) -> None:
    rows = [json.loads(line) for name in names for line in Path(name).read_text().splitlines()]
    if {row["variant"]["name"] for row in rows} == {variant["name"] for variant in screen()}:
        print(effects(rows))
    print(comparison(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
