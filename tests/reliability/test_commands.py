"""Commands that are killed. Full size: `make soak`."""

from __future__ import annotations

import pytest
from commands import Killed
from servers import Servers
from sizes import COMMAND_KILLS, SERVER_KILLS


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def test_a_killed_save_leaves_the_old_model_or_the_new_one(killed: Killed) -> None:
    assert killed.kill_saving(COMMAND_KILLS) == COMMAND_KILLS


@pytest.mark.slow
def test_a_killed_demo_continues(killed: Killed) -> None:
    assert killed.kill_demo(1) == 1


def test_a_killed_comparison_leaves_no_half_table(killed: Killed) -> None:
    assert killed.kill("compare", 1) == 1


def test_a_killed_review_loses_no_label(killed: Killed) -> None:
    assert Servers(killed).kill_review(SERVER_KILLS) == SERVER_KILLS


def test_a_killed_service_answers_the_same_again(killed: Killed) -> None:
    assert Servers(killed).kill_serve(SERVER_KILLS) == SERVER_KILLS
