"""A killed run, resumed, is the same run to the last bit. Full size: `make soak`."""

from __future__ import annotations

import random

import pytest
from killing import Killer
from sizes import EVENTS, KILLS


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    return Killer(tmp_path_factory.mktemp("kills"), epochs=3)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_kills_at_random_moments(seconds: float, killer: Killer) -> None:
    assert killer.at_random_moments(f"random-{seconds}", KILLS, seconds, seed=1, longest=0.3) >= KILLS


@pytest.mark.parametrize("power_loss", [False, True])
def test_kills_at_file_operations(power_loss: bool, killer: Killer) -> None:
    chance = random.Random(3)
    for at in chance.sample(range(1, killer.events + 1), EVENTS):
        killer.at_event(f"event-{at}-{power_loss}", at, power_loss)
