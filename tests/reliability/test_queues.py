"""Workers of a bench that are killed. Full size: `make soak`."""

from __future__ import annotations

from pathlib import Path

from queues import kill_workers
from sizes import KILLS


def test_killed_workers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    assert kill_workers(tmp_path, kills=KILLS, longest=0.6)["kills"] >= KILLS
