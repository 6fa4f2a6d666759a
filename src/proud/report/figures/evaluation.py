"""Confusion matrices and reliability diagrams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from proud.report.figures.style import TEN, Chart, Panel, Theme, clean_label
from proud.report.reliability import bins_of, expected_calibration_error, trust_of
from proud.report.sources import RunSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from proud.trust.calibration import Bin

SETS = (("val", "labeled", "validation images of"), ("test", "test", "unseen domain"))
WITH_NUMBERS, WITH_NAMES = 12, 40  # classes


def measured_sets(run: RunSource) -> list[tuple[str, str]]:
    """(key in the outputs, description) of the sets that have logits and labels."""
    found = [(key, role, text) for key, role, text in SETS if len(run.outputs.get(f"{key}/labels", ()))]
    return [(key, f"{text} {getattr(run.config, role)}") for key, role, text in found]


# ---- confusion


def confusion(run: RunSource, key: str) -> NDArray[Any]:
    """[K, K] counts: rows are true classes, columns are predictions."""
    predicted, labels = run.outputs[f"{key}/logits"].argmax(1), run.outputs[f"{key}/labels"]
    counts = np.zeros((len(run.classes), len(run.classes)), dtype=np.int64)
    np.add.at(counts, (labels, predicted), 1)
    return counts


def most_confused(counts: NDArray[Any], classes: list[str], most: int = 8) -> list[list[str]]:
    """True class, predicted class, images, share of the images of the true class."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    rows = []
    for place in np.argsort(-wrong, axis=None, kind="stable")[:most]:
        truth, predicted = np.unravel_index(place, wrong.shape)
        if wrong[truth, predicted]:
            share = 100 * wrong[truth, predicted] / counts[truth].sum()
            rows.append([classes[truth], classes[predicted], str(wrong[truth, predicted]), f"{share:.1f} %"])
    return rows


def confusion_chart(run: RunSource, name: str) -> Chart | None:
    sets = measured_sets(run)
    if not sets:
        return None
    side = 4.2 if len(run.classes) <= 20 else 5.6
    panels = [Panel(text, ConfusionDrawing(confusion(run, key), run.classes), side, side) for key, text in sets]
    caption = (
        f"Confusion matrix of {run.name} at the last epoch, in % of the images of each true class; the diagonal is "
        "correct."
    )
    return Chart(name, run.name, caption, panels, columns=2)


class ConfusionDrawing:
    def __init__(self, counts: NDArray[Any], classes: list[str]) -> None:
        self.counts, self.classes = counts, classes

    def __call__(self, ax: Axes, theme: Theme) -> None:
        from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415

        share = 100 * self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)
        shades = LinearSegmentedColormap.from_list("share", [theme.paper, theme.strong])
        ax.imshow(share, cmap=shades, vmin=0, vmax=100)
        count = len(self.classes)
        if count <= WITH_NUMBERS:
            self._numbers(ax, share, theme)
        names = [clean_label(name, 14) for name in self.classes] if count <= WITH_NAMES else []
        size = 8 if count <= 20 else 5.5
        ax.set_xticks(
            range(len(names)), names, rotation=90 if max(map(len, names), default=0) > 2 else 0, fontsize=size
        )
        ax.set_yticks(range(len(names)), names, fontsize=size)
        ax.tick_params(length=0)
        ax.set_xlabel("predicted class")
        ax.set_ylabel("true class")

    def _numbers(self, ax: Axes, share: NDArray[Any], theme: Theme) -> None:
        for (row, column), value in np.ndenumerate(share):
            if value >= 0.5:
                color = theme.paper if value > 55 else theme.ink
                ax.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7.5, color=color)


# ---- reliability


def reliability_chart(run: RunSource, name: str) -> Chart | None:
    trust = trust_of(run)
    scaled = trust is not None and abs(trust.temperature - 1) > 0.005
    panels = []
    for key, text in measured_sets(run):
        after = bins_of(run, key, trust.temperature) if trust is not None and scaled else None
        panels.append(Panel(text, ReliabilityDrawing(bins_of(run, key), after), 4.0, 3.6))
    if not panels:
        return None
    caption = (
        f"Reliability of {run.name}: bars show accuracy by confidence, the diagonal is perfect calibration; bars below "
        "it mean overconfidence. ECE is the mean gap."
    )
    if trust is not None and scaled:
        caption += f" The line: after temperature scaling on source validation (T = {trust.temperature:.2f})."
    elif trust is not None:
        caption += f" The confidence is {trust.calibration()}."
    return Chart(name, run.name, caption, panels, columns=2)


class ReliabilityDrawing:
    def __init__(self, before: list[Bin], after: list[Bin] | None) -> None:
        self.before, self.after = before, after

    def __call__(self, ax: Axes, theme: Theme) -> None:
        from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

        most = max(part.count for part in self.before)
        for part in self.before:
            width = part.high - part.low
            strength = 0.35 + 0.65 * part.count / max(most, 1)
            ax.bar(part.low + width / 2, part.accuracy, width=0.92 * width, color=TEN[0], alpha=strength)
        ax.plot([0, 1], [0, 1], color=theme.ink, linewidth=1, linestyle="--")
        text = f"ECE {100 * expected_calibration_error(self.before):.1f} %"
        if self.after is not None:
            filled = [part for part in self.after if part.count]
            line = [part.confidence for part in filled], [part.accuracy for part in filled]
            ax.plot(*line, color=TEN[1], linewidth=1)
            ax.scatter(*line, color=TEN[1], s=[6 + 40 * part.count / max(most, 1) for part in filled], zorder=3)
            text += f" → {100 * expected_calibration_error(self.after):.1f} %"
        ax.text(0.03, 0.95, text, va="top", fontsize=11, fontweight="bold")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.02)
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set_xlabel("confidence (fainter bars: fewer images)")
        ax.set_ylabel("accuracy")
