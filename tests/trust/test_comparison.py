"""The draw gives every image the same chance, and the interval of the difference holds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from proud.trust.comparison import STRATA, difference_interval, draw_sample, exact_difference, make_strata


def test_the_draw_is_fair_stratified_and_independent_of_the_order() -> None:
    expected = np.linspace(-1, 1.1, 73)
    order = np.random.default_rng(0).permutation(73)
    drawn = [draw_sample(make_strata(expected, order), 50, seed) for seed in range(400)]
    assert all(len(set(rows.tolist())) == 50 for rows in drawn)
    chance = np.bincount(np.concatenate(drawn), minlength=73) / 400
    assert abs(chance - 50 / 73).max() < 0.11  # four standard errors
    for rows in drawn[:20]:
        per_stratum = np.bincount(rows * STRATA // 73, minlength=STRATA)
        assert per_stratum.min() >= 9 and per_stratum.max() <= 11
    shuffled = np.random.default_rng(1).permutation(73)
    again = draw_sample(make_strata(expected[shuffled], order[shuffled]), 50, seed=3)
    assert sorted(shuffled[again]) == sorted(drawn[3])
    exchanged = draw_sample(make_strata(-expected, order), 50, seed=3)  # the models
    assert sorted(exchanged) == sorted(drawn[3])


def test_ties_are_settled_by_the_images() -> None:
    order = np.arange(40)[::-1].copy()
    first = draw_sample(make_strata(np.zeros(40), order), 10)
    turned = draw_sample(make_strata(np.zeros(40), order[::-1].copy()), 10)
    assert sorted(order[first]) == sorted(order[::-1][turned])


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.3), (0.1, 0.05), (0.7, 0.1), (0.02, 0.02)])
def test_the_interval_holds_in_95_percent_of_all_draws(first: float, second: float) -> None:
    random = np.random.default_rng(0)
    ends = lru_cache(exact_difference)
    counts = random.multinomial(25, [first, second, 1 - first - second], size=300)
    holds = [low <= first - second <= high for low, high in (ends(int(a), int(b), 25) for a, b, _ in counts)]
    assert np.mean(holds) >= 0.95


def test_more_labels_and_clearer_counts_narrow_the_interval() -> None:
    low, high = exact_difference(25, 15, 50)
    assert low < 0.2 < high
    assert exact_difference(12, 8, 25)[0] < low
    assert exact_difference(40, 5, 50)[0] > 0.4
    assert exact_difference(5, 40, 50)[1] == pytest.approx(-exact_difference(40, 5, 50)[0])


def test_labeled_disagreements_are_settled() -> None:
    exact = difference_interval(30, 10, 50, 50, 200)
    assert (exact.low, exact.value, exact.high) == pytest.approx((0.1, 0.1, 0.1))
    nearly = difference_interval(30, 10, 50, 51, 200)
    assert 0.19 / 2 - 0.001 <= nearly.low <= nearly.value <= nearly.high <= 0.21 / 2 + 0.001
    part = difference_interval(30, 10, 50, 500, 2000)
    assert part.value == pytest.approx(0.1)
    assert 0 < part.low < part.value < part.high
