"""Runs still learn the way they did: on a machine of the same kind in every bit, elsewhere in their losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golden import PATH, RUNS, train_bench, train_one
from proud.machine import Stopped
from proud.training import loop

GOLDEN: dict[str, dict[str, Any]] = json.loads(PATH.read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("golden")
    return {method: train_one(method, folder / method) for method in RUNS} | train_bench(folder)


def test_every_run_is_kept(found: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_run_is_the_golden_one(name: str, found: dict[str, dict[str, Any]]) -> None:
    golden, now = GOLDEN[name], found[name]
    same = now["machine"] == golden["machine"]
    rel = 1e-4 if same else 2e-2  # others round differently, and one pseudo-label that flips moves every later loss
    assert flat(now["epochs"]) == {
        key: value if isinstance(value, str) else pytest.approx(value, rel=rel)
        for key, value in flat(golden["epochs"]).items()
    }
    assert not same or now["exact"] == golden["exact"]


def test_a_resumed_run_is_the_uninterrupted_one(
    found: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)

    def stop(now: loop.Progress) -> None:
        if (now.stage, now.epoch, now.step) == ("main", 2, 1):
            raise Stopped

    with pytest.raises(Stopped):
        train_one("proud-plus", tmp_path, watch=stop)
    assert train_one("proud-plus", tmp_path, resume=True) == found["proud-plus"]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Every number and string of nested dicts and lists under its path."""
    if not isinstance(value, dict | list):
        return {name: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {key: inner for part, item in items for key, inner in flat(item, f"{name}/{part}").items()}
