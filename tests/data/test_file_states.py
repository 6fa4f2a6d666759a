"""Sizes and times of files: helper processes find what one process finds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from proud.data import file_states as module
from proud.data.file_states import GONE, PendingStates, state, states


@pytest.fixture
def groups(tmp_path: Path) -> dict[str, list[str]]:
    """Three domains, one of a single file, one with odd names, and a file that is not there."""
    names = {"one": ["one/a"], "odd": ["odd/é", "odd/a b", os.fsdecode(b"odd/\xff")], "many": []}
    names["many"] = [f"many/{place:03d}" for place in range(101)]
    for size, name in enumerate(name for group in names.values() for name in group):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, ns=(0, 10**18 + size))
    names["many"].insert(50, "many/gone")
    return names


@pytest.fixture(autouse=True)
def helpers_for_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENOUGH_FOR_HELPERS", 1)


@pytest.mark.parametrize("helpers", [1, 2, 4])
def test_helpers_find_the_same(
    helpers: int, groups: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_cores", lambda: helpers)
    with PendingStates(str(tmp_path), groups) as pending:
        assert len(pending.helpers) == helpers
        for name in ("odd", "one", "many"):  # in any order
            np.testing.assert_array_equal(pending.states(name), states(str(tmp_path), groups[name]))
    assert all(helper.returncode is not None for helper in pending.helpers)


def test_values(groups: dict[str, list[str]], tmp_path: Path) -> None:
    found = states(str(tmp_path), groups["many"])
    assert found[0].tolist() == [4, 10**18 + 4] and found[50].tolist() == list(GONE)
    assert state(tmp_path / "many" / "gone") == GONE == state("a\0b")


def test_dead_helpers_do_no_harm(groups: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 2)
    monkeypatch.setattr(module, "HELPER", "import os; os._exit(1)")
    with PendingStates(str(tmp_path), groups) as pending:
        for name in groups:
            np.testing.assert_array_equal(pending.states(name), states(str(tmp_path), groups[name]))


def test_no_helper_can_be_started(tmp_path: Path) -> None:
    with PendingStates(str(tmp_path / "gone"), {"one": ["a", "b"]}) as pending:
        assert not pending.helpers and pending.states("one").tolist() == [[-1, -1], [-1, -1]]
