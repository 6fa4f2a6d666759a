"""ProUD still learns the way it did: its losses on a fixed task, to four digits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from golden import PATH, curve


def numbers(value: Any, name: str = "") -> dict[str, float]:
    if isinstance(value, dict):
        return {key: number for part in value for key, number in numbers(value[part], f"{name}/{part}").items()}
    return {name: value}


def test_the_loss_curve_is_the_golden_one() -> None:
    golden, now = json.loads(PATH.read_text()), curve()
    assert len(golden) == len(now)
    for expected, found in zip(golden, now, strict=True):
        assert numbers(found) == {
            key: value if isinstance(value, str) else pytest.approx(value, rel=1e-4)
            for key, value in numbers(expected).items()
        }
