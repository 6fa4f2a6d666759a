"""Writes that fail, bits that rot. Full size: `make soak`."""

from __future__ import annotations

import pytest
from crashing import SmallRun
from failing import KINDS, count_changes, fail_once
from flips import flip_finished, flip_half_done
from sizes import FLIPS, HALF_DONE_FLIPS, WRITES


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return SmallRun(tmp_path_factory.mktemp("small") / "runs")


def test_each_change_of_a_file_may_fail_once(small: SmallRun) -> None:
    count, kinds = count_changes(small), list(KINDS)
    cases = [(1 + case * count // WRITES, kinds[case % len(kinds)]) for case in range(WRITES)]
    assert fail_once(small, cases)["errors"] >= WRITES // 2


def test_wrong_bits_are_noticed(small: SmallRun) -> None:
    assert flip_finished(small, FLIPS)["refused"] > FLIPS // 2
    assert flip_half_done(small, HALF_DONE_FLIPS)["noticed"] > 0
