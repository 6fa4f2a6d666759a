"""Scores in which all classes count alike, with 95 % intervals for the draw of the images.

Balanced accuracy is the mean of the classes' recalls, macro F1 that of their F1, AUROC that of the areas under the ROC
curve of each class against the rest. A class without images has none of them and is left out; so is, for AUROC, a
class without other images.

Balanced accuracy has an interval made of Wilson's. The other two are bootstrapped within the classes: the number of
images of each class stays, because a class of three images would be missing from one resample in twenty and the score
would be another one. Each class is drawn from its own images and, with the weight of one image, from all: a resample of
ten right answers alone would never contain a wrong one, and the interval would have no width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from proud.stored import ScoreRecord, ScoresRecord
from proud.trust.intervals import Interval, mean_recall_interval

DRAWS = 1000
SEED = 2022
MOST_VALUES = 3_000_000  # images × classes: above, drawing takes minutes, and the interval is narrow
AT_ONCE = 4_000_000  # drawn images


@dataclass(frozen=True)
class Score:
    """A score with its 95 % interval, if there is one."""

    value: float
    interval: Interval | None

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} %" if self.interval is None else str(self.interval)

    def as_json(self) -> ScoreRecord:
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        return {"value": self.value, "interval": ends}


@dataclass(frozen=True)
class Scores:
    """Of one set of labeled images. A score is None if no class has it."""

    balanced_accuracy: Score | None
    macro_f1: Score | None
    auroc: Score | None
    absent: tuple[str, ...]
    """classes without images"""

    def as_json(self) -> ScoresRecord:
        every = (self.balanced_accuracy, self.macro_f1, self.auroc)
        balanced, f1, auroc = (None if score is None else score.as_json() for score in every)
        return {"balanced_accuracy": balanced, "macro_f1": f1, "auroc": auroc, "absent": list(self.absent)}


def scores(probs: Tensor, labels: Tensor, classes: Sequence[str]) -> Scores:
    """Of predicted probabilities. [N,K], [N], K names -> scores."""
    values, truth = probs.double().cpu().numpy(), labels.cpu().numpy()
    images, counts = len(truth), np.bincount(truth, minlength=len(classes))
    absent = tuple(name for name, count in zip(classes, counts, strict=True) if not count)
    if not images:
        return Scores(None, None, None, absent)
    predicted = values.argmax(1)
    right = np.bincount(truth[predicted == truth], minlength=len(classes))
    recalls = [float(a / b) if b else None for a, b in zip(right, counts, strict=True)]
    balanced = mean_recall_interval(recalls, counts.tolist())
    own = {int(k): np.flatnonzero(truth == k)[None] for k in np.flatnonzero(counts)}  # one draw: the images themselves
    ranks = {k: np.unique(values[:, k], return_inverse=True)[1].reshape(-1) for k in own}
    f1, auroc = [macro_f1(predicted, own, len(classes))], [macro_auroc(ranks, own)] if len(own) > 1 else []
    for draw in _resamples(own, images) if values.size <= MOST_VALUES else ():
        f1.append(macro_f1(predicted, draw, len(classes)))
        if auroc:
            auroc.append(macro_auroc(ranks, draw))
    return Scores(
        None if balanced is None else Score(balanced.value, balanced),
        _score(f1, images),
        _score(auroc, images) if auroc else None,
        absent,
    )


Draw = dict[int, np.ndarray]
"""Rows of images that are taken to be of a class. class -> [draws, images of the class]"""


def _resamples(own: Draw, images: int) -> Iterator[Draw]:
    """Bootstrap resamples, as many at once as memory allows."""
    random = np.random.default_rng(SEED)
    at_once = max(1, min(DRAWS, AT_ONCE // images))
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        found = {}
        for k, [rows] in own.items():
            shape = (draws, len(rows))
            other = random.random(shape) < 1 / (len(rows) + 1)
            usual, any_image = rows[random.integers(len(rows), size=shape)], random.integers(images, size=shape)
            found[k] = np.where(other, any_image, usual)
        yield found


def macro_f1(predicted: np.ndarray, draw: Draw, classes: int) -> np.ndarray:
    """Mean F1 of the drawn classes. Predicted classes [N] -> [draws]."""
    chosen = {k: predicted[rows] for k, rows in draw.items()}
    times = np.sum([_counts(each, classes) for each in chosen.values()], axis=0)
    parts = [2 * (each == k).sum(1) / (each.shape[1] + times[:, k]) for k, each in chosen.items()]
    return np.asarray(np.mean(parts, axis=0))


def macro_auroc(ranks: dict[int, np.ndarray], draw: Draw) -> np.ndarray:
    """Mean area under the curve of each drawn class against the others. class -> ranks [N] by probability -> [draws].

    The area is the share of pairs of an image of the class and another that are in order, ties counting half.
    """
    areas = []
    for k, rank in ranks.items():
        length = int(rank.max()) + 1
        counts = {each: _counts(rank[rows], length) for each, rows in draw.items()}
        inside = counts.pop(k)
        outside = np.sum(list(counts.values()), axis=0)
        below = outside.cumsum(1) - outside / 2
        areas.append((inside * below).sum(1) / (inside.sum(1) * outside.sum(1)))
    return np.asarray(np.mean(areas, axis=0))


def _counts(values: np.ndarray, length: int) -> np.ndarray:
    """How often each value below `length` occurs in each row. [D,N] -> [D,length]."""
    draws = len(values)
    places = np.arange(draws)[:, None] * length + values
    return np.bincount(places.ravel(), minlength=draws * length).reshape(draws, length)


def _score(found: Sequence[np.ndarray], images: int) -> Score:
    """The value of the images themselves, and the interval that their resamples give."""
    value = float(found[0][0])
    if len(found) == 1:
        return Score(value, None)
    low, high = np.quantile(np.concatenate(found[1:]), [0.025, 0.975])
    return Score(value, Interval(value, min(float(low), value), max(float(high), value), images))
