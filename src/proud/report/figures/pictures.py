"""Images of a run: training pairs after the paper's Fig. 1, and the most and least certain images per domain."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from proud.report.arrays import Arrays
from proud.report.figures.style import Chart, Panel, Theme, clean_label
from proud.report.sources import RunSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PAIRS_SHOWN = 8


@dataclass(frozen=True, eq=False)
class PredictedImage:
    """An image with its (pseudo-)label; `right` is None if the true class is unknown."""

    image: NDArray[Any]
    label: str
    uncertainty: float
    truth: str | None
    domain: str
    pseudo: bool = True  # pseudo-labeled: the uncertainty is ε, else 1 - confidence

    @property
    def right(self) -> bool | None:
        return None if self.truth is None else self.truth == self.label

    @property
    def uncertainty_text(self) -> str:
        return f"ε {self.uncertainty:.2f}" if self.pseudo else f"p {100 * (1 - self.uncertainty):.0f} %"


@dataclass(frozen=True, eq=False)
class Pair(PredictedImage):
    """`image` is the unlabeled image."""

    labeled: NDArray[Any] = field(kw_only=True)
    mixed: NDArray[Any] = field(kw_only=True)
    ratio: float = field(kw_only=True)


class ListedImage(NamedTuple):
    """An image with its path; `image` is None in runs that did not keep it."""

    image: NDArray[Any] | None
    path: str
    label: str
    note: str


Gallery = dict[str, tuple[list[PredictedImage], list[PredictedImage]]]
"""Domain → its most certain images (most certain first), its least certain images (least certain first)."""


def training_pairs(run: RunSource, moment: str) -> list[Pair]:
    """The first of the randomly drawn pairs of the snapshot."""
    arrays = run.snapshots.get(moment, {})
    if "method/pairs/mixed" not in arrays:
        return []
    pairs = {key.removeprefix("method/pairs/"): value for key, value in arrays.items() if "/pairs/" in key}
    count = len(pairs["labels"])
    truth = pairs.get("truth", np.full(count, -1))
    domains = [run.unlabeled[place] for place in pairs["domain"]] if "domain" in pairs else [""] * count
    return [
        Pair(
            pairs["unlabeled"][row],
            run.classes[pairs["labels"][row]],
            float(pairs["uncertainty"][row]),
            run.classes[truth[row]] if truth[row] >= 0 else None,
            domains[row],
            labeled=pairs["labeled"][row],
            mixed=pairs["mixed"][row],
            ratio=float(pairs["ratio"][row]),
        )
        for row in range(min(count, PAIRS_SHOWN))
    ]


def most_and_least_certain(run: RunSource) -> Gallery:
    arrays = run.snapshots.get("last", {})
    domains = [(f"certain/unlabeled/{name}", name, name) for name in run.unlabeled]
    domains.append(("certain/test", run.config.test, f"{run.config.test} (unseen)"))
    gallery = {}
    for key, domain, title in domains:
        if f"{key}/images" in arrays:
            images = _predicted_images(run, arrays, key, domain)
            half = (len(images) + 1) // 2
            gallery[title] = (images[:half], images[half:][::-1])
    return gallery


def _predicted_images(run: RunSource, arrays: Arrays, key: str, domain: str) -> list[PredictedImage]:
    truth = arrays[f"{key}/truth"]
    return [
        PredictedImage(
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
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(out, "PNG", optimize=True)
    return out.getvalue()


# ---- figures for files


def pairs_chart(pairs: Sequence[Pair], name: str, title: str) -> Chart:
    panel = Panel(title, partial(_draw_pairs, pairs=pairs), 1.25 * len(pairs) + 0.3, 5.4)
    return Chart(name, title, "", [panel])


def _draw_pairs(ax: Axes, theme: Theme, pairs: Sequence[Pair]) -> None:
    """Columns of labeled, unlabeled and mixed image."""
    for column, pair in enumerate(pairs):
        for row, image in enumerate((pair.labeled, pair.image, pair.mixed)):
            _place(ax, image, column, -1.12 * row, theme, pair.right if row == 1 else None)
        mark = {True: " ✓", False: " ✗", None: ""}[pair.right]
        text = (
            f"{clean_label(pair.label, 14)}{mark}\nε {pair.uncertainty:.2f}\nλ {pair.ratio:.2f}\n"
            f"{clean_label(pair.domain, 14)}"
        )
        color = {True: theme.good, False: theme.bad, None: theme.ink}[pair.right]
        ax.text(column, -2.9, text, ha="center", va="top", fontsize=8, color=color)
    for row, text in enumerate(("labeled", "unlabeled", "mixed")):
        ax.text(-0.62, -1.12 * row, text, rotation=90, ha="center", va="center", fontsize=8)
    _finish(ax, len(pairs), -3.75)


def gallery_chart(gallery: Gallery, name: str, title: str) -> Chart:
    columns = max(len(most) for most, _ in gallery.values())
    panels = [
        Panel(
            f"{domain}: {text} certain",
            partial(_draw_row, images=images, columns=columns),
            0.95 * columns,
            1.75,
        )
        for domain, both in gallery.items()
        for text, images in zip(("most", "least"), both, strict=True)
    ]
    return Chart(name, title, "", panels, columns=2)


def _draw_row(ax: Axes, theme: Theme, images: Sequence[PredictedImage], columns: int) -> None:
    for column, item in enumerate(images):
        _place(ax, item.image, column, 0, theme, item.right)
        mark = {True: " ✓", False: " ✗", None: ""}[item.right]
        text = f"{clean_label(item.label, 10)}{mark}\n{item.uncertainty_text}"
        ax.text(column, -0.6, text, ha="center", va="top", fontsize=7)
    _finish(ax, columns, -1.3)


def _place(ax: Axes, image: NDArray[Any], x: float, y: float, theme: Theme, right: bool | None) -> None:
    ax.imshow(image.transpose(1, 2, 0), extent=(x - 0.48, x + 0.48, y - 0.48, y + 0.48), interpolation="nearest")
    if right is not None:
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        color = theme.good if right else theme.bad
        frame = Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, fill=False, edgecolor=color, linewidth=2.2)
        frame.set_linestyle("-" if right else "--")
        ax.add_patch(frame)


def _finish(ax: Axes, columns: int, bottom: float) -> None:
    ax.set_xlim(-0.8, columns - 0.4)
    ax.set_ylim(bottom, 0.55)
    ax.set_aspect("equal")
    ax.set_axis_off()
