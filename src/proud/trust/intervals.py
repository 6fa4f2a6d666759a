"""95 % confidence intervals of accuracies, for the draw of the images (not of the seed).

An accuracy has Wilson's interval: unlike the usual one it stays inside [0, 1] and has a width at 0 and at 100 %, and
unlike Clopper-Pearson's it is not wider than needed: on average over accuracies it holds in 95 % of all draws, and it
also exists for the mean accuracy of several epochs, which is no whole number of right answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDEST_WITH_DECIMAL = 0.04  # a standard error of about one point
Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its 95 % interval, all as shares, and the number of images behind it."""

    value: float
    low: float
    high: float
    images: int

    def __str__(self) -> str:
        """For example 90 % (60–98, n = 10): without a decimal where it says nothing."""
        digits = 1 if self.has_decimal else 0
        value, low, high = (f"{100 * number:.{digits}f}" for number in (self.value, self.low, self.high))
        return f"{value} % ({low}–{high}, n = {self.images})"

    @property
    def has_decimal(self) -> bool:
        """Whether a decimal of the percentage says something."""
        return self.high - self.low <= WIDEST_WITH_DECIMAL

    @property
    def difference(self) -> str:
        """The text of a difference, for example +2 points (−1 to +6, n = 200)."""
        value, low, high = self.points
        return f"{value} points ({low} to {high}, n = {self.images})"

    @property
    def points(self) -> list[str]:
        """Of a difference: value and ends."""
        digits = 1 if self.has_decimal else 0
        return [signed(100 * number, digits) for number in (self.value, self.low, self.high)]


def signed(number: float, digits: int = 1) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def accuracy_interval(accuracy: float, images: int) -> Interval | None:
    """Wilson (1927). None without images."""
    if images < 1:
        return None
    square = Z * Z
    middle = (accuracy + square / (2 * images)) / (1 + square / images)
    half = Z / (1 + square / images) * math.sqrt(accuracy * (1 - accuracy) / images + square / (4 * images**2))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(accuracy, min(low, accuracy), max(high, accuracy), images)  # rounding at 0 and 1


def mean_recall_interval(recalls: Sequence[float | None], images: Sequence[int]) -> Interval | None:
    """Of the mean recall of the classes that have images, combined from the intervals of the recalls.

    Zou and Donner (2008): distances from each recall to its limits add up like standard errors. None without images.
    """
    pairs = zip(recalls, images, strict=True)
    parts = [part for recall, count in pairs if recall is not None and (part := accuracy_interval(recall, count))]
    if not parts:
        return None
    mean = sum(part.value for part in parts) / len(parts)
    below = math.sqrt(sum((part.value - part.low) ** 2 for part in parts)) / len(parts)
    above = math.sqrt(sum((part.high - part.value) ** 2 for part in parts)) / len(parts)
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above), sum(part.images for part in parts))


def paired_interval(only_first: int, only_second: int, images: int) -> Interval | None:
    """Of the accuracy of a first model minus that of a second on the same images. None without images.

    Only images count on which exactly one of them is right. Bonett and Price (2012): a normal interval after one more
    image is counted for each side.
    """
    if images < 1:
        return None
    total = images + 2
    first, second = (only_first + 1) / total, (only_second + 1) / total
    half = Z * math.sqrt(max(0.0, first + second - (first - second) ** 2) / total)
    middle = first - second
    value = (only_first - only_second) / images
    return Interval(value, max(-1.0, middle - half), min(1.0, middle + half), images)
