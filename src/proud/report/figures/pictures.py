"""Real images of a run: training pairs after the paper's Fig. 1, and the most and least certain ones of each domain."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from proud.report.figures.style import Chart, Panel, Theme, plain
from proud.report.gather import Arrays, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PAIRS_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Shown:
    """An image with its (pseudo-)label; `right` is None where nobody knows the true class."""

    image: NDArray[Any]
    label: str
    uncertainty: float
    truth: str | None
    domain: str
    pseudo: bool = True  # its uncertainty is ε; else 1 - confidence

    @property
    def right(self) -> bool | None:
        return None if self.truth is None else self.truth == self.label

    @property
    def doubt(self) -> str:
        return f"ε {self.uncertainty:.2f}" if self.pseudo else f"p {100 * (1 - self.uncertainty):.0f} %"


@dataclass(frozen=True, eq=False)
class Pair(Shown):
    """`image` is the unlabeled one."""

    labeled: NDArray[Any] = field(kw_only=True)
    mixed: NDArray[Any] = field(kw_only=True)
    ratio: float = field(kw_only=True)


def training_pairs(run: Run, moment: str) -> list[Pair]:
    """The first pairs of the snapshot, which drew them at random."""
    arrays = run.snapshots.get(moment, {})
    if "method/pairs/mixed" not in arrays:
        return []
    held = {key.removeprefix("method/pairs/"): value for key, value in arrays.items() if "/pairs/" in key}
    count = len(held["labels"])
    truth = held.get("truth", np.full(count, -1))
    domains = [run.unlabeled[place] for place in held["domain"]] if "domain" in held else [""] * count
    return [
        Pair(
            held["unlabeled"][row],
            run.classes[held["labels"][row]],
            float(held["uncertainty"][row]),
            run.classes[truth[row]] if truth[row] >= 0 else None,
            domains[row],
            labeled=held["labeled"][row],
            mixed=held["mixed"][row],
            ratio=float(held["ratio"][row]),
        )
        for row in range(min(count, PAIRS_SHOWN))
    ]


def certain_and_not(run: Run) -> dict[str, tuple[list[Shown], list[Shown]]]:
    """Domain → its most certain images (best first), and its least certain ones (worst first)."""
    arrays = run.snapshots.get("last", {})
    domains = [(f"certain/unlabeled/{name}", name, name) for name in run.unlabeled]
    domains.append(("certain/test", run.config["test"], f"{run.config['test']} (unseen)"))
    found = {}
    for key, domain, title in domains:
        if f"{key}/images" in arrays:
            images = _shown(run, arrays, key, domain)
            half = (len(images) + 1) // 2
            found[title] = (images[:half], images[half:][::-1])
    return found


def _shown(run: Run, arrays: Arrays, key: str, domain: str) -> list[Shown]:
    truth = arrays[f"{key}/truth"]
    return [
        Shown(
            arrays[f"{key}/images"][row],
            run.classes[arrays[f"{key}/labels"][row]],
            float(arrays[f"{key}/uncertainty"][row]),
            run.classes[truth[row]] if truth[row] >= 0 else None,
            domain,
            f"{key.removeprefix('certain/')}/pseudo" in arrays,
        )
        for row in range(len(truth))
    ]


def picture_png(image: NDArray[Any]) -> bytes:
    """uint8 [3, H, W] as a PNG file."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(out, "PNG", optimize=True)
    return out.getvalue()


# ---- the same as figures for paper


def pairs_chart(pairs: Sequence[Pair], name: str, title: str) -> Chart:
    panel = Panel(title, partial(_draw_pairs, pairs=pairs), 1.25 * len(pairs) + 0.3, 5.4)
    return Chart(name, title, "", [panel])


def _draw_pairs(ax: Axes, theme: Theme, pairs: Sequence[Pair]) -> None:
    """Columns of labeled, unlabeled and mixed image."""
    for column, pair in enumerate(pairs):
        for row, image in enumerate((pair.labeled, pair.image, pair.mixed)):
            _place(ax, image, column, -1.12 * row, theme, pair.right if row == 1 else None)
        mark = {True: " ✓", False: " ✗", None: ""}[pair.right]
        text = f"{plain(pair.label, 14)}{mark}\nε {pair.uncertainty:.2f}\nλ {pair.ratio:.2f}\n{plain(pair.domain, 14)}"
        color = {True: theme.good, False: theme.bad, None: theme.ink}[pair.right]
        ax.text(column, -2.9, text, ha="center", va="top", fontsize=8, color=color)
    for row, text in enumerate(("labeled", "unlabeled", "mixed")):
        ax.text(-0.62, -1.12 * row, text, rotation=90, ha="center", va="center", fontsize=8)
    _finish(ax, len(pairs), -3.75)


def gallery_chart(found: dict[str, tuple[list[Shown], list[Shown]]], name: str, title: str) -> Chart:
    columns = max(len(most) for most, _ in found.values())
    panels = [
        Panel(
            f"{domain}: {text} certain",
            partial(_draw_row, images=images, columns=columns),
            0.95 * columns,
            1.75,
        )
        for domain, both in found.items()
        for text, images in zip(("most", "least"), both, strict=True)
    ]
    return Chart(name, title, "", panels, columns=2)


def _draw_row(ax: Axes, theme: Theme, images: Sequence[Shown], columns: int) -> None:
    for column, shown in enumerate(images):
        _place(ax, shown.image, column, 0, theme, shown.right)
        mark = {True: " ✓", False: " ✗", None: ""}[shown.right]
        ax.text(column, -0.6, f"{plain(shown.label, 10)}{mark}\n{shown.doubt}", ha="center", va="top", fontsize=7)
    _finish(ax, columns, -1.3)


def _place(ax: Axes, image: NDArray[Any], x: float, y: float, theme: Theme, right: bool | None) -> None:
    ax.imshow(image.transpose(1, 2, 0), extent=(x - 0.48, x + 0.48, y - 0.48, y + 0.48), interpolation="nearest")
    if right is not None:
        from matplotlib.patches import Rectangle

        color = theme.good if right else theme.bad
        frame = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, fill=False, edgecolor=color, linewidth=2.2)
        frame.set_linestyle("-" if right else "--")
        ax.add_patch(frame)


def _finish(ax: Axes, columns: int, bottom: float) -> None:
    ax.set_xlim(-0.8, columns - 0.4)
    ax.set_ylim(bottom, 0.55)
    ax.set_aspect("equal")
    ax.set_axis_off()
