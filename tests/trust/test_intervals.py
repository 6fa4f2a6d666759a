"""Intervals against textbook values and against simulated draws."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from proud.trust.intervals import accuracy_interval, mean_recall_interval, paired_interval


@pytest.mark.parametrize(("right", "images"), [(9, 10), (0, 7), (7, 7), (117, 120), (1, 2)])
def test_wilson_as_in_scipy(right, images):
    found, wanted = accuracy_interval(right / images, images), binomtest(right, images).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_text_names_the_images():
    assert str(accuracy_interval(0.9, 10)) == "90 % (60–98, n = 10)"
    assert paired_interval(80, 30, 2000).difference == "+2.5 points (+1.5 to +3.5, n = 2000)"


def test_no_decimal_that_the_interval_says_nothing_about():
    assert str(accuracy_interval(0.876, 97)) == "88 % (80–93, n = 97)"
    assert str(accuracy_interval(0.876, 9700)) == "87.6 % (86.9–88.2, n = 9700)"
    assert paired_interval(8, 3, 200).difference.startswith("+2 points (−1")


def test_no_images_no_interval():
    assert accuracy_interval(0.0, 0) is None
    assert mean_recall_interval([None, None], [0, 0]) is None
    assert paired_interval(0, 0, 0) is None


def test_mean_of_recalls_of_one_class_is_its_interval():
    assert mean_recall_interval([0.25, None], [40, 0]) == accuracy_interval(0.25, 40)


def test_mean_of_recalls_is_as_wide_as_its_rarest_class_makes_it():
    even, rare = mean_recall_interval([0.9, 0.5], [100, 100]), mean_recall_interval([0.9, 0.5], [190, 10])
    assert rare.value == even.value == pytest.approx(0.7)
    assert rare.high - rare.low > even.high - even.low


def coverage_of_mean_recall(recalls, images, draws=2000):
    random = np.random.default_rng(0)
    right = random.binomial(images, recalls, size=(draws, len(images)))
    truth = np.mean(recalls)
    found = (mean_recall_interval(list(row / images), list(images)) for row in right)
    return np.mean([each.low <= truth <= each.high for each in found])


@pytest.mark.parametrize("images", [[30, 30, 30], [100, 8, 20]])
def test_mean_of_recalls_holds_in_most_draws(images):
    assert coverage_of_mean_recall([0.95, 0.6, 0.3], np.array(images)) > 0.93


@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.02, 0.12), (0.3, 0.2)])
@pytest.mark.parametrize("images", [30, 200])
def test_paired_difference_holds_in_most_draws(shares, images):
    random, (first, second) = np.random.default_rng(1), shares
    draws = random.multinomial(images, [first, second, 1 - first - second], size=2000)
    found = [paired_interval(int(a), int(b), images) for a, b, _ in draws]
    assert np.mean([each.low <= first - second <= each.high for each in found]) > 0.93


def test_pairing_is_sharper_than_two_intervals():
    """Two models of 80 % that differ on few images."""
    alone = accuracy_interval(0.8, 200)
    together = paired_interval(5, 5, 200)
    assert together.high - together.low < 0.5 * math.sqrt(2) * (alone.high - alone.low)
