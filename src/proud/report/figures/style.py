"""How figures look: two themes, colours that most colour-blind people can tell apart, and how a figure is drawn."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Petroff's ten-colour sequence (arXiv:2107.02270)
TEN = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"]
SHAPES = "oXs^DvP<>pH"
LABEL_LENGTH, LEGEND_LENGTH = 22, 34
MOST_MARKS = 40  # in a legend on paper


@dataclass(frozen=True)
class Theme:
    name: str
    ink: str
    faint: str
    paper: str
    strong: str
    good: str
    bad: str


LIGHT = Theme("light", "#1c2430", "#c9d0da", "#ffffff", "#0b4a86", "#0a7a53", "#c2410c")
DARK = Theme("dark", "#e6eaf0", "#465164", "#171c24", "#7ab8f0", "#4cc79a", "#ff9d66")


@dataclass(frozen=True)
class Mark:
    """An entry of a legend: a colour (else the ink's), and a marker's shape or a line (`-` or `--`)."""

    label: str
    color: str = ""
    shape: str = ""
    line: str = ""


@dataclass(frozen=True)
class Panel:
    title: str
    draw: Callable[[Axes, Theme], None]
    width: float = 4.0
    height: float = 3.2


@dataclass(frozen=True)
class Chart:
    """`name` is the stem of its files; `columns` is how many panels stand side by side on paper."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    marks: Sequence[Mark] = ()
    columns: int = 3


def class_colors(count: int) -> list[str]:
    """Ten told-apart colours; more classes share a rainbow, and the figures then also number them."""
    if count <= len(TEN):
        return TEN[:count]
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(color) for color in colormaps["turbo"](np.linspace(0.05, 0.95, count))]


def shape_of(place: int) -> str:
    return SHAPES[place % len(SHAPES)]


def plain(text: str, length: int = LABEL_LENGTH) -> str:
    """A user's name as a label: short, on one line; a leading underscore would hide it from legends."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    text = text if len(text) <= length else text[: length - 1] + "…"
    return f" {text}" if text.startswith("_") else text


def settings(theme: Theme) -> dict[str, Any]:
    return {
        "font.size": 9,
        "font.family": "DejaVu Sans",
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": theme.faint,
        "axes.labelcolor": theme.ink,
        "axes.titlecolor": theme.ink,
        "axes.facecolor": theme.paper,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "text.parse_math": False,  # a name with dollar signs is a name
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "grid.alpha": 0.7,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "pdf.fonttype": 42,
    }


def panel_png(panel: Panel, theme: Theme, dpi: int = 150) -> bytes:
    """One panel, without its title: the page writes that as text."""
    return _drawn([panel], theme, 1, (), "png", dpi, titles=False)


def chart_file(chart: Chart, kind: str) -> bytes:
    """The whole figure as `png` or `pdf`, with titles and legend."""
    return _drawn(chart.panels, LIGHT, chart.columns, chart.marks, kind, 200, titles=True)


def _drawn(
    panels: Sequence[Panel], theme: Theme, columns: int, marks: Sequence[Mark], kind: str, dpi: int, titles: bool
) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    width = sum(panel.width for panel in panels[:columns])
    height = sum(max(panel.height for panel in panels[start : start + columns]) for start in _starts(panels, columns))
    with matplotlib.rc_context(settings(theme)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font lacks become boxes; the page has the text
        legend_lines = -(-min(len(marks), MOST_MARKS) // legend_columns(marks, width))
        figure = Figure(figsize=(width, height + 0.22 * legend_lines), layout="constrained")
        axes = np.atleast_1d(figure.subplots(lines, columns)).flatten()
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        for ax, panel in zip(axes, panels, strict=False):
            panel.draw(ax, theme)
            if titles:
                letters = max(12, int(12 * panel.width))
                ax.set_title("\n".join(wrap(plain(panel.title, 3 * letters), letters)), loc="left", pad=14)
        if marks:
            _legend(figure, marks, theme, width)
        out = io.BytesIO()
        # no date inside: equal runs give equal files
        figure.savefig(out, format=kind, dpi=dpi, metadata={"CreationDate": None} if kind == "pdf" else None)
    return out.getvalue()


def _starts(panels: Sequence[Panel], columns: int) -> range:
    return range(0, len(panels), columns)


def _legend(figure: Figure, marks: Sequence[Mark], theme: Theme, width: float) -> None:
    from matplotlib.lines import Line2D

    shown = list(marks)[:MOST_MARKS]
    handles = [
        Line2D(
            [],
            [],
            color=mark.color or theme.ink,
            marker=mark.shape or ("" if mark.line else "o"),
            linestyle=mark.line,
            markersize=7,
        )
        for mark in shown
    ]
    labels = [plain(mark.label, LEGEND_LENGTH) for mark in shown]
    columns = legend_columns(marks, width)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def legend_columns(marks: Sequence[Mark], width: float) -> int:
    """As many as fit into this width, in inches."""
    longest = max((len(plain(mark.label, LEGEND_LENGTH)) for mark in marks), default=1)
    return max(1, min(len(marks), int(width / (0.5 + 0.07 * longest))))
