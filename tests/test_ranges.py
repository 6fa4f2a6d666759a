"""Numbers that settings may be, and those that are refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from proud import ranges
from proud.config import RunConfig, check_kinds
from proud.errors import UserError
from proud.methods import METHODS, method_class, method_config

LISTS = (ranges.COUNTS, ranges.NOT_NEGATIVE, ranges.POSITIVE, ranges.SHARES, ranges.MEMORIES, ranges.BETAS)
NUMBERS = {
    (field.name, name)
    for name in METHODS
    for field in fields(method_class(name).Config)
    if field.type in ("int", "float")
}


def test_every_number_is_in_one_list_and_no_list_names_another() -> None:
    names = [name for names in LISTS for name in names]
    assert sorted(names) == sorted({name for name, _ in NUMBERS})


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_in_range(method: str) -> None:
    ranges.check_ranges(method_config(method))


@pytest.mark.parametrize(
    ("method", "name", "value", "text"),
    [
        ("proud-plus", "own_share", 1.5, "between 0 and 1"),
        ("proud-plus", "balance", 9, "between 0 and 1"),
        ("proud-plus", "outline", -3, "between 0 and 1"),
        ("proud", "alpha", float("inf"), "at least 0"),
        ("proud", "threshold", float("nan"), "between 0 and 1"),
        ("proud", "mixup", 0.001, "at least 0.1"),
        ("proud", "momentum", -1, "at least 0 and below 1"),
        ("mixmatch", "beta", 0, "at least 0.1"),
        ("mixmatch", "temperature", 0, "positive"),
        ("mean-teacher", "ema_decay", 1.5, "at least 0 and below 1"),
        ("l2d", "contrast_temperature", 0, "positive"),
        ("eid", "clean_share", 5, "between 0 and 1"),
        ("rsc", "drop_share", 2, "between 0 and 1"),
    ],
)
def test_what_could_only_end_in_nonsense_is_refused(method: str, name: str, value: Any, text: str) -> None:
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} must be {text}, got"):
        ranges.check_ranges(method_config(method, **{name: value}))


def test_a_setting_of_ones_own_method_must_be_finite() -> None:
    assert not ranges.out_of_range("mine", -7.5)
    assert ranges.out_of_range("mine", float("nan")) == "a finite number"


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [("proud-plus", "class_mix", "Even"), ("proud", "schedule", "cos"), ("proud", "dapp_bn", None)],
)
def test_a_word_that_is_no_choice_is_refused(method: str, name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"--{name.replace('_', '-')} is \w+ or \w+, got {value!r}"):
        check_kinds(method_config(method, **{name: value}))


def test_a_run_s_words_are_looked_at_too() -> None:
    with pytest.raises(UserError, match="--precision is auto, fp32 or bf16, got 'fp16'"):
        check_kinds(RunConfig(precision="fp16"))  # type: ignore[arg-type]
