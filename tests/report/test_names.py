"""Short names distinguish the runs of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proud.report.sources import short_names


def names(*configs: dict[str, Any]) -> list[str]:
    default = {"method": "proud", "labeled": "pen", "test": "street", "seed": 1}
    return list(short_names({Path(f"runs/{n}"): default | config for n, config in enumerate(configs)}).values())


def test_the_method_then_the_combination_then_the_seed() -> None:
    assert names({}, {"method": "erm"}) == ["proud", "erm"]
    assert names({}, {"test": "print"}) == ["proud, pen → street", "proud, pen → print"]
    assert names({}, {"seed": 2}) == ["proud, seed 1", "proud, seed 2"]


def test_parts_that_are_off_and_settings_that_differ() -> None:
    assert names({}, {"method_config": {"pml": False}}) == ["proud", "proud without PML"]
    assert names({}, {"method_config": {"alpha": 0}}) == ["proud", "proud without PML"]
    pairs = ({"method_config": {"views": 1, "alpha": 1}}, {"method_config": {"views": 3, "alpha": 1}})
    assert names(*pairs) == ["proud (views 1)", "proud (views 3)"]


def test_the_folder_if_nothing_else_differs() -> None:
    assert names({}, {}, {"method": "erm"}) == ["proud (0)", "proud (1)", "erm"]
