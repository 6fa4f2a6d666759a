"""Training curves after the paper's Fig. 3: accuracies, mixing ratios and losses over the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proud.report.figures.style import TEN, Chart, Mark, Panel, Theme
from proud.report.sources import RunSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = tuple[list[int], list[float]]


def training_curves(run: RunSource, name: str) -> Chart:
    panels = [Panel("Accuracy (%)", lambda ax, theme: _accuracies(ax, theme, run))]
    by_uncertainty = mixes_by_uncertainty(run)
    if by_uncertainty:
        panels.append(Panel("Mean mixing ratio λ", lambda ax, theme: _ratios(ax, theme, run)))
    elif any(record.get("domains") for record in run.records):
        panels.append(Panel("Mean uncertainty", lambda ax, theme: _ratios(ax, theme, run, "uncertainty")))
    panels.append(Panel("Losses", lambda ax, theme: _losses(ax, theme, run)))
    marks = [Mark(text, line=style) for key, text, style in _scores(run) if _series(run, key)[0]]
    marks += [Mark(f"pseudo-labels of {site}", color=color, line="-") for site, color in _site_colors(run).items()]
    caption = f"Training curves of {run.name}: accuracy on the unseen domain and on validation images."
    if _site_colors(run):
        what = "uncertainty"
        if by_uncertainty:
            what = "mean λ (weight of the unlabeled image in a mix; drawn from U(0, 1), it counts as 0.5)"
        caption = (
            f"Training curves of {run.name}: accuracy on the unseen domain, accuracy of the pseudo-labels, and {what} "
            "of each unlabeled domain."
        )
    return Chart(name, run.name, caption, panels, marks)


def mixes_by_uncertainty(run: RunSource) -> bool:
    """Whether any mean λ is not that of ratios from U(0, 1)."""
    sites = [site for record in run.records for site in record.get("domains", {}).values()]
    return any(site.get("lambda", 0.5) != 0.5 for site in sites)


def _scores(run: RunSource) -> list[tuple[str, str, str]]:
    return [
        ("test_accuracy", f"test: {run.config.test}", "-"),
        ("val_accuracy", f"validation: {run.config.labeled}", ":"),
    ]


def _site_colors(run: RunSource) -> dict[str, str]:
    sites = [name for name in run.unlabeled if any(name in record.get("domains", {}) for record in run.records)]
    return {name: TEN[place % len(TEN)] for place, name in enumerate(sites)}


def _series(run: RunSource, key: str, site: str = "") -> Line:
    """Epochs over all stages, and values; epochs without a value are left out."""
    series: Line = ([], [])
    for epoch, record in enumerate(run.records, 1):
        source: Mapping[str, Any] | None = record.get("domains", {}).get(site) if site else record
        if source and key in source:
            series[0].append(epoch)
            series[1].append(float(source[key]))
    return series


def _frame(ax: Axes, theme: Theme, run: RunSource) -> None:
    """Epoch axis, and a line where a stage ends."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    ax.set_xlabel("epoch")
    ax.grid(axis="y")
    ax.set_xlim(0.5, max(len(run.records), 2) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    stages = [record["stage"] for record in run.records]
    for epoch in range(1, len(stages)):
        if stages[epoch] != stages[epoch - 1]:
            ax.axvline(epoch + 0.5, color=theme.ink, linewidth=0.8, linestyle=(0, (1, 2)))
            ax.annotate(
                stages[epoch], (epoch + 0.5, 1.01), xycoords=("data", "axes fraction"), fontsize=7.5, ha="center"
            )


def _accuracies(ax: Axes, theme: Theme, run: RunSource) -> None:
    for site, color in _site_colors(run).items():
        epochs, values = _series(run, "accuracy", site)
        ax.plot(epochs, [100 * value for value in values], color=color, marker="o" if len(values) == 1 else "")
    for key, _, style in _scores(run):
        epochs, values = _series(run, key)
        marker = "o" if len(values) == 1 else ""
        ax.plot(epochs, [100 * value for value in values], color=theme.ink, linestyle=style, marker=marker)
    ax.set_ylim(0, 102)
    _frame(ax, theme, run)


def _ratios(ax: Axes, theme: Theme, run: RunSource, key: str = "lambda") -> None:
    first = len(run.records)
    for site, color in _site_colors(run).items():
        epochs, values = _series(run, key, site)
        ax.plot(epochs, values, color=color, marker="o" if len(values) == 1 else "")
        first = min([first, *epochs])
    ax.set_ylim(bottom=0)
    _frame(ax, theme, run)
    ax.set_xlim(first - 0.5, len(run.records) + 0.5)


def _losses(ax: Axes, theme: Theme, run: RunSource) -> None:
    names = list(dict.fromkeys(name for record in run.records for name in record.get("losses", {})))
    styles = ["-", "--", ":", "-."]
    for place, name in enumerate(names):
        epochs = [epoch for epoch, record in enumerate(run.records, 1) if name in record.get("losses", {})]
        values = [run.records[epoch - 1]["losses"][name] for epoch in epochs]
        ax.plot(epochs, values, color=theme.ink, linestyle=styles[place % len(styles)], linewidth=1.3, label=name)
    if len(names) > 1:
        ax.legend(fontsize=7.5)
    _frame(ax, theme, run)
