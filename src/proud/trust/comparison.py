"""Which of two models is better at a site, from the labels of a few images on which they disagree.

Where they agree, both are right or both are wrong. The difference of their accuracies is therefore the share of images
on which they disagree times P(first right) - P(second right) among those, and only those need labels.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta

from proud.trust.intervals import Interval

STRATA = 5
ERROR = 0.05  # of a 95 % interval, half on each side
SPENT = 0.001  # of each half, on the range of the share of decided images
SHARES = 40  # of decided images, tried in their range
HALVINGS = 20
ROUNDING = 1e-12


def make_strata(expected: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """The rows of each stratum: parts of equal size along the expected advantage [M].

    `order` [M] settles ties: strata depend on the images alone, not on the order of their files, nor on which model is
    named first.
    """
    expected = -expected if expected.sum() < 0 else expected
    return np.array_split(np.lexsort((order, expected)), STRATA)


def draw_sample(strata: list[np.ndarray], count: int, seed: int = 0) -> np.ndarray:
    """`count` rows, each with the same probability. The rows of a stratum are shuffled and every (M / count)-th one is
    taken from a random start, so each stratum gets its share."""
    random = np.random.default_rng([STRATA, seed])
    mixed = np.concatenate([random.permutation(part) for part in strata])
    places = (np.arange(count) + random.random()) * (len(mixed) / count)
    return mixed[places.astype(np.int64)]


def difference_interval(first: int, second: int, drawn: int, disagreements: int, images: int) -> Interval:
    """Accuracy of the first model minus that of the second. Of `drawn` images among the `disagreements`, the first is
    right on `first` and the second on `second`.

    The interval inverts exact tests of the multinomial distribution; the share of images on which either is right is
    limited to its own exact interval (Berger and Boos 1994). Strata make the draw less variable than the tests assume.
    What the labels have settled is never doubted: with all disagreements labeled, the interval is a point.
    """
    low, high = exact_difference(first, second, drawn)
    settled, open_ = first - second, disagreements - drawn
    low = max(low * disagreements, settled - open_) / images
    high = min(high * disagreements, settled + open_) / images
    value = (first - second) / drawn * disagreements / images
    return Interval(value, min(low, value), max(high, value), images)


def exact_difference(first: int, second: int, drawn: int) -> tuple[float, float]:
    """95 % interval of P(first) - P(second) from the counts of a multinomial draw."""
    decided = first + second
    rest = drawn - decided
    least = float(beta.ppf(SPENT / 2, decided, rest + 1)) if decided else 0.0
    most = float(beta.ppf(1 - SPENT / 2, decided + 1, rest)) if rest else 1.0
    shares = np.linspace(least, most, SHARES)
    # an upper end is minus the lower end with the models exchanged
    return _lower_end(first - second, drawn, shares), -_lower_end(second - first, drawn, shares)


def _lower_end(found: int, drawn: int, shares: np.ndarray) -> float:
    """The lowest difference at which #first - #second >= found is not too rare, by bisection."""
    low, high = -1.0, found / drawn
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _tail(middle, shares, drawn, found) + SPENT > ERROR / 2:
            high = middle
        else:
            low = middle
    return low


def _tail(difference: float, shares: np.ndarray, drawn: int, found: int) -> float:
    """The largest P(#first - #second >= found) over the shares of decided images; 0 if none is possible."""
    shares = shares[shares >= abs(difference) - ROUNDING]
    if not len(shares):
        return 0.0
    length = 1 << math.ceil(math.log2(2 * drawn + 1))
    single = np.zeros((len(shares), length))
    single[:, 0] = (shares - difference) / 2  # -1, 0, 1 as powers 0, 1, 2
    single[:, 1] = 1 - shares
    single[:, 2] = (shares + difference) / 2
    whole = np.fft.irfft(np.fft.rfft(single, axis=1) ** drawn, length, axis=1)
    return float(whole[:, found + drawn : 2 * drawn + 1].sum(1).max())
