"""t-SNE maps of features and domain-aware prototypes, after the paper's Figs. 2 and 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from proud.report.arrays import Arrays
from proud.report.figures.style import SHAPES, Chart, Mark, Panel, Theme, class_colors, clean_label, shape_of
from proud.report.sources import RunSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PCA_TO = 50
ITERATIONS = 300
ANGLE = 0.8  # of Barnes-Hut: coarser than the usual 0.5, with maps as good
MOST_POINTS = 400
"""images per map, as many of each domain: more would hide each other, and take minutes for several runs"""
NUMBERED = 10  # with more classes than this, prototypes are numbered
MERGED = "*"


@dataclass(frozen=True, eq=False)
class Points:
    """The points of one map. `kind`: number of the domain; -1 for the merged prototypes."""

    features: NDArray[Any]
    classes: NDArray[Any]
    kind: NDArray[Any]
    prototype: NDArray[Any]


def embed(features: NDArray[Any], seed: int = 0) -> NDArray[Any]:
    """[N, d] -> [N, 2] by Barnes-Hut t-SNE with PCA initialisation; deterministic."""
    from sklearn.decomposition import PCA  # noqa: PLC0415
    from sklearn.manifold import TSNE  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    features = np.asarray(features, dtype=np.float32)
    if len(features) < 5:
        return np.pad(features, ((0, 0), (0, 2)))[:, :2]
    if min(features.shape) > PCA_TO:
        features = PCA(PCA_TO, svd_solver="randomized", random_state=seed).fit_transform(features)
    if not np.ptp(features, axis=0).any():
        return np.zeros((len(features), 2), dtype=np.float32)
    perplexity = min(30.0, (len(features) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=ITERATIONS, angle=ANGLE, random_state=seed)
    with threadpool_limits(1):  # faster than several threads unless the machine is idle
        return tsne.fit_transform(features)


def feature_maps(
    runs: Sequence[RunSource], name: str, progress: Callable[[str], None] = lambda text: None
) -> Chart | None:
    """One row of panels per run: first, middle and last epoch. The runs share classes and domains."""
    runs = [run for run in runs if run.snapshots]
    if not runs:
        return None
    panels = []
    for run in runs:
        for moment, arrays in run.snapshots.items():
            progress(f"t-SNE of {run.name}, {moment} epoch")
            points = collect(run, arrays)
            title = f"{run.name}: epoch {run.epoch_of(moment)}" if len(runs) > 1 else f"epoch {run.epoch_of(moment)}"
            panels.append(Panel(title, Drawing(points, embed(points.features), len(run.classes)), 3.9, 3.7))
    classes = runs[0].classes
    marks = [Mark(domain, shape=shape_of(place)) for place, domain in enumerate(training_domains(runs[0]))]
    if any("method/merged" in arrays for run in runs for arrays in run.snapshots.values()):
        marks.append(Mark("mean of the domains' prototypes", shape=MERGED))
    numbers = len(classes) > NUMBERED
    marks += [
        Mark(f"{place + 1} {label}" if numbers else label, color=color)
        for place, (label, color) in enumerate(zip(classes, class_colors(len(classes)), strict=True))
    ]
    caption = (
        "t-SNE of features (small) and domain-aware prototypes (large, outlined), right after pseudo-labeling. Colour: "
        "class; shape: domain. Unlabeled images are coloured by their true class if it is known, otherwise by their "
        "pseudo-label."
    )
    if any(centred(run) for run in runs):
        which = "" if all(map(centred, runs)) else f" of {join_names([run.name for run in runs if centred(run)])}"
        caption += f" Features{which} are centred per domain, as for the prototypes."
    title = join_names([run.name for run in runs])
    return Chart(name, title, caption, panels, marks, columns=max(len(run.snapshots) for run in runs))


def join_names(names: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def training_domains(run: RunSource) -> list[str]:
    """The labeled domain, then the unlabeled ones, in the order of their marker shapes."""
    return [run.config.labeled, *run.unlabeled]


def centred(run: RunSource) -> bool:
    """Whether features are centred per domain before prototypes are computed."""
    return bool(run.settings.get("center", False))


def collect(run: RunSource, arrays: Arrays) -> Points:
    parts: list[tuple[NDArray[Any], NDArray[Any], int, bool]] = []
    for place, domain in enumerate(training_domains(run)):
        key = "labeled" if place == 0 else f"unlabeled/{domain}"
        features = unit(arrays[f"{key}/features"])
        if centred(run):
            features = unit(features - features.mean(0))
        classes = colors_of(arrays, key)
        shown = spread(len(features), MOST_POINTS // len(training_domains(run)))
        parts.append((features[shown], classes[shown], place, False))
        if "method/merged" not in arrays:
            continue
        if place == 0:
            parts.append((*class_means(features, classes), place, True))
        elif f"method/prototypes/{domain}" in arrays:
            present = arrays[f"method/present/{domain}"].astype(bool)
            parts.append((unit(arrays[f"method/prototypes/{domain}"][present]), np.flatnonzero(present), place, True))
    if "method/merged" in arrays:
        merged = arrays["method/merged"]
        present = np.flatnonzero(np.linalg.norm(merged, axis=1) > 0)
        parts.append((unit(merged[present]), present, -1, True))
    return Points(
        np.concatenate([features for features, *_ in parts]),
        np.concatenate([classes for _, classes, *_ in parts]),
        np.concatenate([np.full(len(features), place) for features, _, place, _ in parts]),
        np.concatenate([np.full(len(features), prototype) for features, _, _, prototype in parts]),
    )


def spread(count: int, most: int) -> NDArray[Any]:
    """At most so many rows, evenly spaced: rows are in random order."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, max(1, most)).round().astype(int)


def colors_of(arrays: Arrays, key: str) -> NDArray[Any]:
    """True classes where known, else pseudo-labels, else predictions."""
    if f"{key}/labels" in arrays:
        return arrays[f"{key}/labels"]
    predicted = arrays.get(f"{key}/pseudo", arrays[f"{key}/logits"].argmax(1))
    truth = arrays.get(f"{key}/truth", np.full(len(predicted), -1))
    return np.where(truth >= 0, truth, predicted)


def class_means(features: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Prototypes of the labeled domain, from the images of the snapshot."""
    present = np.unique(classes)
    return unit(np.stack([features[classes == label].mean(0) for label in present])), present


def unit(features: NDArray[Any]) -> NDArray[Any]:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


class Drawing:
    """Draws one map from precomputed positions [N, 2]."""

    def __init__(self, points: Points, positions: NDArray[Any], classes: int) -> None:
        self.points, self.positions, self.classes = points, positions, classes

    def __call__(self, ax: Axes, theme: Theme) -> None:
        colors = np.array(class_colors(self.classes))
        points = self.points
        for prototype in (False, True):
            for kind in sorted(set(points.kind.tolist()) - (set() if prototype else {-1}), reverse=True):
                chosen = (points.kind == kind) & (points.prototype == prototype)
                if not chosen.any():
                    continue
                merged = kind == -1
                ax.scatter(
                    self.positions[chosen, 0],
                    self.positions[chosen, 1],
                    c=colors[points.classes[chosen]],
                    marker=MERGED if merged else SHAPES[kind % len(SHAPES)],
                    s=170 if merged else (75 if prototype else 11),
                    alpha=1 if prototype else (0.6 if theme.name == "light" else 0.8),
                    linewidths=1.1 if prototype else 0,
                    edgecolors=theme.ink if prototype else "none",
                    zorder=2 + prototype,
                    rasterized=not prototype,
                )
        if self.classes > NUMBERED:
            self._numbers(ax, theme)
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_visible(True)

    def _numbers(self, ax: Axes, theme: Theme) -> None:
        for row in np.flatnonzero(self.points.kind == -1):
            text = clean_label(str(self.points.classes[row] + 1))
            ax.annotate(
                text, self.positions[row], fontsize=6.5, color=theme.ink, xytext=(4, 4), textcoords="offset points"
            )
