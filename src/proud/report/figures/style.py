"""Rendering of figures: a light and a dark theme, colour-blind safe colours, PNG and PDF output."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Petroff's ten-colour sequence (arXiv:2107.02270)
TEN = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"]
SHAPES = "oXs^DvP<>pH"
LABEL_LENGTH, LEGEND_LENGTH = 22, 34
MOST_MARKS = 40  # in the legend of a file
PANEL_DPI, FILE_DPI = 150, 160


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
    """A legend entry: a colour (default: the ink) and a marker shape or a line style."""

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
    """`name`: stem of its files; `columns`: panels per row."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    marks: Sequence[Mark] = ()
    columns: int = 3


def class_colors(count: int) -> list[str]:
    """Ten distinct colours; a continuous colour map for more classes, which the figures also number."""
    if count <= len(TEN):
        return TEN[:count]
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.colors import to_hex  # noqa: PLC0415

    return [to_hex(color) for color in colormaps["turbo"](np.linspace(0.05, 0.95, count))]


def shape_of(place: int) -> str:
    return SHAPES[place % len(SHAPES)]


def clean_label(text: str, length: int = LABEL_LENGTH) -> str:
    """A name as a short one-line label. Matplotlib hides legend labels that start with an underscore."""
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
        "text.parse_math": False,  # dollar signs in names are literal
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "grid.alpha": 0.7,
        "lines.linewidth": 1.8,
        "legend.frameon": False,
        "pdf.fonttype": 42,
    }


def panel_png(panel: Panel, theme: Theme, dpi: int = PANEL_DPI) -> bytes:
    """One panel without its title, in at most 256 colours: a third of the size without a visible difference."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with _style(theme):
        figure = Figure(figsize=(panel.width, panel.height), dpi=dpi, layout="constrained")
        panel.draw(figure.subplots(), theme)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    out = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(out, "PNG", compress_level=6)
    return out.getvalue()


def chart_files(chart: Chart) -> dict[str, bytes]:
    """The whole figure as `png` and `pdf`, with titles and legend. It is drawn and laid out once for both."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # noqa: PLC0415

    png, pdf = io.BytesIO(), io.BytesIO()
    with _style(LIGHT):
        figure = _figure(chart, LIGHT)
        FigureCanvasAgg(figure).print_png(png, pil_kwargs={"compress_level": 4})
        figure.set_layout_engine("none")  # keep the layout
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})  # equal runs give equal files
    return {"png": png.getvalue(), "pdf": pdf.getvalue()}


@contextmanager
def _style(theme: Theme) -> Iterator[None]:
    import matplotlib  # noqa: PLC0415

    with matplotlib.rc_context(settings(theme)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs missing from the font are drawn as boxes; the page has the text
        yield


def _figure(chart: Chart, theme: Theme) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415

    panels = chart.panels
    columns = min(chart.columns, len(panels))
    starts = range(0, len(panels), columns)
    width = sum(panel.width for panel in panels[:columns])
    height = sum(max(panel.height for panel in panels[start : start + columns]) for start in starts)
    legend_rows = -(-min(len(chart.marks), MOST_MARKS) // legend_columns(chart.marks, width))
    figure = Figure(figsize=(width, height + 0.22 * legend_rows), dpi=FILE_DPI, layout="constrained")
    axes = np.atleast_1d(figure.subplots(len(starts), columns)).flatten()
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax, panel in zip(axes, panels, strict=False):
        panel.draw(ax, theme)
        letters = max(12, int(12 * panel.width))
        ax.set_title("\n".join(wrap(clean_label(panel.title, 3 * letters), letters)), loc="left", pad=14)
    if chart.marks:
        _legend(figure, chart.marks, theme, width)
    return figure


def _legend(figure: Figure, marks: Sequence[Mark], theme: Theme, width: float) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

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
    labels = [clean_label(mark.label, LEGEND_LENGTH) for mark in shown]
    columns = legend_columns(marks, width)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def legend_columns(marks: Sequence[Mark], width: float) -> int:
    """As many as fit into this width, in inches."""
    longest = max((len(clean_label(mark.label, LEGEND_LENGTH)) for mark in marks), default=1)
    return max(1, min(len(marks), int(width / (0.5 + 0.07 * longest))))
