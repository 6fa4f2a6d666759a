"""A killed run, resumed, is the same run to the last bit. Full size: `make soak`."""

from __future__ import annotations

import pytest
from crashing import SmallRun
from disk import syncs, without
from killing import Killer
from sizes import KILLS, LOSSES


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    return Killer(tmp_path_factory.mktemp("kills"), epochs=3)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return SmallRun(tmp_path_factory.mktemp("small") / "runs")


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_kills_at_random_moments(seconds: float, killer: Killer) -> None:
    assert killer.at_random_moments(f"random-{seconds}", KILLS, seconds, seed=1, longest=0.3) >= KILLS


def test_kills_and_power_losses_at_every_file_event(small: SmallRun) -> None:
    assert small.recover(small.states(range(LOSSES))) > 30


@pytest.mark.parametrize("name", ["records.jsonl", ".checkpoint-000002.safetensors", ".model.safetensors"])
def test_a_missing_sync_would_be_found(name: str, small: SmallRun) -> None:
    """What the test above can see: without one sync, some power loss changes the outcome."""
    written = {event[3]: event[2] for event in small.events if event[0] == "create"}
    last = [place for place in syncs(small.events) if written.get(small.events[place][1], "").startswith(name)][-1]
    fewer = list(small.states(range(LOSSES), without(small.events, last)))
    whole = [tree for _, _, tree in small.states(range(LOSSES))]
    with pytest.raises(AssertionError, match="power loss"):
        small.recover(state for state in fewer if state[2] not in whole)
