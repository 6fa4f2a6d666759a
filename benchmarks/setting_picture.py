"""The README's picture of the setting: what is given, what is wanted, and the demo's accuracy.

Usage: python benchmarks/setting_picture.py docs/images/setting.png   (from benchmarks/results/demo.json)
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib
import numpy as np
from table_text import read

from proud.data.embedded import load_embedded

matplotlib.use("Agg")
from matplotlib import pyplot

DIGITS = (3, 0, 7, 5, 1, 8)
PANELS = {"pen": "labeled site", "texture": "unlabeled site", "print": "unlabeled site", "street": "unseen site"}
COLOURS = {"pen": "#2f7d4f", "texture": "#8a8f98", "print": "#8a8f98", "street": "#b4551f"}


def accuracies() -> dict[str, float]:
    """In %, on the unseen site: source-only training, and the default method."""
    runs = read("demo.json")["runs"]
    return {name: round(100 * run["test_accuracy"], 1) for name, run in runs.items()}


def draw(figure: Any, found: dict[str, float]) -> None:
    panels = figure.add_gridspec(2, 3, left=0.02, right=0.98, bottom=0.03, top=0.88, wspace=0.14, hspace=0.5)
    places = {"pen": (slice(None), 0), "texture": (0, 1), "print": (1, 1), "street": (0, 2)}
    for site, title in PANELS.items():
        axes = figure.add_subplot(panels[places[site]])
        show_images(axes, site, labels=site == "pen")
        axes.set_title(f"{site}: {title}", fontsize=11, color=COLOURS[site], weight="bold", pad=5)
    bars = figure.add_subplot(panels[1, 2])
    before, after = found.values()
    bars.barh([1, 0], [before, after], color=["#c9cdd3", COLOURS["street"]], height=0.62)
    names = ("pen alone", "and texture, print")
    for place, name, value in zip((1, 0), names, (before, after), strict=True):
        bars.text(value + 2, place, f"{value:.0f} %", va="center", fontsize=11, weight="bold")
        bars.text(value + 26, place, name, va="center", fontsize=10, color="#444a52")
    bars.set(xlim=(0, 135), ylim=(-0.45, 1.45))
    bars.axis("off")
    bars.set_title("accuracy on street", fontsize=11, color=COLOURS["street"], weight="bold", pad=5)


def show_images(axes: Any, site: str, labels: bool) -> None:
    """A row of digits; of the labeled site two, with their labels below."""
    images, digits = load_embedded()[site]
    rows = 2 if labels else 1
    for number, digit in enumerate(DIGITS * rows):
        image = images[np.flatnonzero(digits == digit)[number]]
        left, top = number % len(DIGITS), number // len(DIGITS) * 1.55
        axes.imshow(image, extent=(left, left + 0.94, -top - 0.94, -top), interpolation="nearest")
        if labels:
            axes.text(left + 0.47, -top - 1.18, str(digit), ha="center", va="center", fontsize=11, color=COLOURS[site])
    axes.set(xlim=(-0.1, 6.04), ylim=(-1.05 - 1.55 * (rows - 1) - 0.4 * labels, 0.1), aspect="equal")
    axes.axis("off")


def main() -> None:
    found = accuracies()
    figure = pyplot.figure(figsize=(10, 2.7), dpi=160)
    draw(figure, found)
    figure.savefig(sys.argv[1], metadata={"Description": str(found)})


if __name__ == "__main__":
    main()
