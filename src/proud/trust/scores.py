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

DRAWS, FEWEST_DRAWS = 1000, 200
SEED = 2022
MOST_WORK = 100_000_000  # draws × images × classes: some seconds
MOST_VALUES = MOST_WORK // FEWEST_DRAWS
AT_ONCE = 1_000_000  # drawn images


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
    counts = np.bincount(truth, minlength=len(classes))
    absent = tuple(name for name, count in zip(classes, counts, strict=True) if not count)
    if not len(truth):
        return Scores(None, None, None, absent)
    order = np.argsort(truth, kind="stable")
    values, truth, predicted = values[order], truth[order], values[order].argmax(1)
    right = np.bincount(truth[predicted == truth], minlength=len(classes))
    recalls = [float(a / b) if b else None for a, b in zip(right, counts, strict=True)]
    balanced = mean_recall_interval(recalls, counts.tolist())
    present = np.flatnonzero(counts)
    places = {int(k): slice(*np.searchsorted(truth, [k, k + 1])) for k in present}
    ties = {k: Ties.of(values[:, k]) for k in places} if len(places) > 1 else {}
    draws = 0 if values.size > MOST_VALUES else max(FEWEST_DRAWS, min(DRAWS, MOST_WORK // values.size))
    f1, auroc = [], []
    for rows in (np.arange(len(truth))[None], *_resamples(places, draws)):  # first the images themselves
        f1.append(macro_f1(predicted, rows, places, len(classes)))
        auroc += [macro_auroc(ties, rows, places)] if ties else []
    return Scores(
        None if balanced is None else Score(balanced.value, balanced),
        _score(f1, len(truth)),
        _score(auroc, len(truth)) if auroc else None,
        absent,
    )


Places = dict[int, slice]
"""class -> its images, which follow one another"""


def _resamples(places: Places, draws: int) -> Iterator[np.ndarray]:
    """Bootstrap resamples of all images: rows [D,N], at the places of a class those that are taken to be of it."""
    random = np.random.default_rng(SEED)
    images = max(place.stop for place in places.values())
    at_once = max(1, AT_ONCE // images)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        parts = []
        for place in places.values():
            size = place.stop - place.start
            other = random.random((count, size)) < 1 / (size + 1)
            own = random.integers(place.start, place.stop, size=(count, size))
            parts.append(np.where(other, random.integers(images, size=(count, size)), own))
        yield np.concatenate(parts, axis=1)


def macro_f1(predicted: np.ndarray, rows: np.ndarray, places: Places, classes: int) -> np.ndarray:
    """Mean F1 of the classes that have images. Predicted classes [N], drawn rows [D,N] -> [D]."""
    chosen = predicted[rows]
    times = _counts(chosen, classes)
    parts = [
        2 * (chosen[:, place] == k).sum(1) / (place.stop - place.start + times[:, k]) for k, place in places.items()
    ]
    return np.asarray(np.mean(parts, axis=0))


@dataclass(frozen=True)
class Ties:
    """The order of images by a value, and for each image the first and the last place of those with its value."""

    order: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Ties:
        order = np.argsort(values, kind="stable")
        ranked = values[order]
        return cls(order, np.searchsorted(ranked, values, "left"), np.searchsorted(ranked, values, "right"))


def macro_auroc(ties: dict[int, Ties], rows: np.ndarray, places: Places) -> np.ndarray:
    """Mean area under the curve of each class against the others. Drawn rows [D,N] -> [D].

    The area is the share of pairs of an image of the class and another that are in order, ties counting half. Over all
    pairs with an image of the class, those with one of its own contribute half of its number, squared.
    """
    draws, images = rows.shape
    times = _counts(rows, images)  # how often each image is drawn
    areas = []
    for k, place in places.items():
        below = np.zeros((draws, images + 1))
        times[:, ties[k].order].cumsum(1, out=below[:, 1:])
        mine, size = rows[:, place], place.stop - place.start
        first, last = (np.take_along_axis(below, ends[mine], 1) for ends in (ties[k].first, ties[k].last))
        areas.append(((first + last).sum(1) - size**2) / (2 * size * (images - size)))
    return np.asarray(np.mean(areas, axis=0))


def _counts(values: np.ndarray, length: int) -> np.ndarray:
    """How often each value below `length` occurs in each row. [D,N] -> [D,length]."""
    draws = len(values)
    found = np.bincount((np.arange(draws)[:, None] * length + values).ravel(), minlength=draws * length)
    return found.reshape(draws, length)


def _score(found: Sequence[np.ndarray], images: int) -> Score:
    """The value of the images themselves, and the interval that their resamples give."""
    value = float(found[0][0])
    if len(found) == 1:
        return Score(value, None)
    low, high = np.quantile(np.concatenate(found[1:]), [0.025, 0.975])
    return Score(value, Interval(value, min(float(low), value), max(float(high), value), images))
