"""Settings: the values they may have, and what it takes to add one."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import fields, replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import proud
from proud import ProUD
from proud.cli.bench import prepare
from proud.cli.flags.bench import BenchArguments
from proud.cli.flags.shared import parse
from proud.cli.flags.train import parse_train
from proud.config import (
    Machine,
    NetSpec,
    Options,
    ReadSpec,
    RunConfig,
    TaskSpec,
    check,
    check_run,
    check_value,
    config_difference,
    flag,
    flat,
    unwrap,
)
from proud.errors import UserError
from proud.estimator_settings import GIVEN_TO_FIT, own_parameters
from proud.methods import METHODS, method_class, method_config
from toy import write_folders

SOURCE = Path(proud.__file__).parent


def hints_of(kind: type) -> dict[str, Any]:
    """Name → type of every field, limits included."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def numbers_of(kind: type) -> list[str]:
    return [name for name, hint in hints_of(kind).items() if unwrap(hint)[0] in (int, float)]


# ---- values


def test_every_number_has_limits() -> None:
    kinds = {method_class(name).Config for name in METHODS} | {RunConfig, Options}
    without = [
        (kind.__name__, name) for kind in kinds for name in numbers_of(kind) if not unwrap(hints_of(kind)[name])[1]
    ]
    assert not without


@pytest.mark.parametrize("method", METHODS)
def test_defaults_are_allowed(method: str) -> None:
    check(RunConfig(), Options(), method_config(method))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_no_number_may_be_infinite_or_nan(method: str, value: float) -> None:
    for settings in (method_config(method), RunConfig(), Options()):
        names = numbers_of(type(settings))
        assert names
        for name in names:
            with pytest.raises(UserError, match=f"{flag(name)} must be .*, got {value}"):
                check(replace(settings, **{name: value}))


@pytest.mark.parametrize(
    ("method", "name", "value", "text"),
    [
        ("proud-plus", "classifier", 1.5, "between 0 and 1"),
        ("proud-plus", "warp", 9, "between 0 and 1"),
        ("proud-plus", "outline", -3, "between 0 and 1"),
        ("proud", "epochs", 0, "at least 1"),
        ("proud", "pretrain_epochs", -1, "at least 0"),
        ("proud", "alpha", float("inf"), "at least 0"),
        ("proud", "threshold", float("nan"), "between 0 and 1"),
        ("proud", "mixup", 0.001, "at least 0.1"),
        ("proud", "momentum", -1, "at least 0 and below 1"),
        ("proud", "momentum", 1, "at least 0 and below 1"),
        ("mixmatch", "beta", 0, "at least 0.1"),
        ("mixmatch", "temperature", 0, "positive"),
        ("mean-teacher", "ema_decay", 1.5, "at least 0 and below 1"),
        ("l2d", "contrast_temperature", 0, "positive"),
        ("eid", "clean_share", 5, "between 0 and 1"),
        ("rsc", "drop_share", 2, "between 0 and 1"),
    ],
)
def test_values_outside_the_limits_are_refused(method: str, name: str, value: Any, text: str) -> None:
    with pytest.raises(UserError, match=f"{flag(name)} must be {text}, got {value}"):
        check(method_config(method, **{name: value}))


def test_settings_of_the_same_name_may_have_different_limits() -> None:
    words = ["--labeled", "pen", "--beta", "0.05"]
    run, settings, options, *_ = parse_train(["--method", "l2d", *words])
    check_run(run, settings, options)
    assert settings.beta == 0.05  # type: ignore[attr-defined]
    run, settings, options, *_ = parse_train(["--method", "mixmatch", *words])
    with pytest.raises(UserError, match=r"--beta must be at least 0\.1, got 0\.05"):
        check_run(run, settings, options)


def test_a_number_without_limits_must_be_finite() -> None:
    check_value("mine", -7.5, float)
    with pytest.raises(UserError, match="--mine must be a finite number, got nan"):
        check_value("mine", math.nan, float)


@pytest.mark.parametrize(
    ("name", "value"), [("val", 1.0), ("val", -0.1), ("size", -1), ("seed", -1), ("eval_every", 0)]
)
def test_values_of_a_run_are_checked_too(name: str, value: float) -> None:
    kind = RunConfig if name in hints_of(RunConfig) else Options
    with pytest.raises(UserError, match=f"{flag(name)} must be at least .*, got {value}"):
        check(kind(**{name: value}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (RunConfig(seed="a"), "--seed must be of type int, got 'a'"),  # type: ignore[arg-type]
        (RunConfig(seed=True), "--seed must be of type int, got True"),
        (RunConfig(val="0.1"), r"--val must be of type float, got '0\.1'"),  # type: ignore[arg-type]
        (RunConfig(skip_bad=1), "--skip-bad must be of type bool, got 1"),  # type: ignore[arg-type]
        (RunConfig(data=None), "--data must be of type str, got None"),  # type: ignore[arg-type]
        (Options(threads=0.5), r"--threads must be of type int, got 0\.5"),  # type: ignore[arg-type]
        (RunConfig(precision="fp16"), "--precision must be auto, fp32 or bf16, got 'fp16'"),  # type: ignore[arg-type]
        (RunConfig(square="round"), "--square must be middle, pad or stretch, got 'round'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_and_choices_are_refused(settings: Any, text: str) -> None:
    with pytest.raises(UserError, match=text):
        check(settings)


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [("proud-plus", "class_mix", "Even"), ("proud", "schedule", "cos"), ("proud", "schedule", None)],
)
def test_choices_of_a_method_are_checked_too(method: str, name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"{flag(name)} must be \w+ or \w+, got {value!r}"):
        check(method_config(method, **{name: value}))


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ({"unlabeled": "north"}, "unlabeled must be a list of domains, got 'north'"),
        ({"labeled": 3}, "Invalid settings"),
        ({"val": "much"}, "--val must be of type float, got 'much'"),
        ({"square": "round"}, "--square must be middle, pad or stretch"),
    ],
)
def test_stored_settings_are_checked_too(stored: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        RunConfig.from_stored(stored)


# ---- adding an option touches its dataclass and the code that uses it
#
# All tests below go through the fields, so that they hold for a new one too.


def another(kind: type, name: str) -> Any:
    """An allowed value that is not the default."""
    plain, limits = unwrap(hints_of(kind)[name])
    default = getattr(kind(), name)
    if get_origin(plain) is Literal:
        return get_args(plain)[-1]
    if plain is bool:
        return not default
    if plain in (int, float):
        return next(value for value in (plain(48), 0.25) if all(limit.holds(value) for limit in limits))
    return "another" if plain is str else ("another", "yet another")


def words_for(name: str, value: Any) -> list[str]:
    """A flag and its value, as typed."""
    if isinstance(value, bool):
        return [flag(name)] if value else [f"--no-{flag(name)[2:]}"]
    return [flag(name), *(value if isinstance(value, tuple) else [str(value)])]


read_options = pytest.mark.parametrize("name", hints_of(ReadSpec))
task_options = pytest.mark.parametrize("name", hints_of(TaskSpec))
run_options = pytest.mark.parametrize("name", hints_of(RunConfig))


@pytest.mark.parametrize("kind", [RunConfig, Options])
def test_other_values_are_allowed_ones(kind: type) -> None:
    for name in hints_of(kind):
        value = another(kind, name)
        assert value != getattr(kind(), name)
        check(kind(**{name: value}))


@task_options
def test_an_option_is_a_flag_of_train(name: str) -> None:
    value = another(TaskSpec, name)
    required = [] if name == "labeled" else ["--labeled", "pen"]
    given = parse_train(["--model", "digits", *required, *words_for(name, value)])
    assert getattr(given.run, name) == value


@read_options
def test_an_option_is_a_flag_of_bench_and_reaches_its_runs(name: str, tmp_path: Path) -> None:
    value = another(ReadSpec, name)
    folder = write_folders(tmp_path, {"a": 0, "b": 1, "c": 2}, per_class=1)
    given = parse(BenchArguments, [str(folder), *words_for(name, value)], "bench", "")
    assert getattr(given.reading, name) == value
    _, plan = prepare(given)
    assert plan.jobs and all(getattr(job.run, name) == value for job in plan.jobs)


def test_a_bench_has_all_options_of_network_and_machine() -> None:
    for part, kind in (("network", NetSpec), ("machine", Machine)):
        for name in hints_of(kind):
            value = another(kind, name)
            given = parse(BenchArguments, ["embedded", *words_for(name, value)], "bench", "")
            assert getattr(getattr(given, part), name) == value


@task_options
def test_an_option_is_a_keyword_in_python(name: str) -> None:
    if name in GIVEN_TO_FIT:  # `fit` gets the images and their roles
        assert name not in hints_of(ReadSpec) and name not in own_parameters()
        return
    value = another(TaskSpec, name)
    model = ProUD(**{name: value})
    assert name in own_parameters() and name in signature(ProUD).parameters
    assert model.get_params()[name] == value and not model.settings
    assert getattr(model._config(model._given()), name) == value


@run_options
def test_an_option_is_stored_and_read_back(name: str) -> None:
    run = RunConfig(**{"labels": "table.csv", name: another(RunConfig, name)})
    stored = json.loads(json.dumps(flat(run, method_config("erm"))))
    assert stored[name] == json.loads(json.dumps(getattr(run, name)))
    assert RunConfig.from_stored(stored) == run


@run_options
def test_a_changed_option_is_reported(name: str) -> None:
    settings = method_config("erm")
    before, after = flat(RunConfig(), settings), flat(RunConfig(**{name: another(RunConfig, name)}), settings)
    (line,) = config_difference(before, after)
    assert re.match(rf"{name}: .* → ", line)


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def names_as_a_setting(path: Path, name: str) -> bool:
    """Whether a file has a field, parameter, keyword or attribute of this name; methods such as x.square() aside."""
    nodes = nodes_of(path)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.keyword | ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.Attribute) and node.attr == name and id(node) not in called:
            return True
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return True
    return False


@pytest.mark.parametrize(("name", "most"), [("square", 11), ("skip_bad", 21), ("val", 5)])
def test_an_option_is_not_passed_on_from_layer_to_layer(name: str, most: int) -> None:
    """A specification is handed on whole. `skip_bad` is an option of every command that reads images."""
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if names_as_a_setting(path, name)]
    assert "config.py" in files and "data/task.py" in files  # declared, and used
    assert len(files) <= most, files


def test_numbers_too_large_for_a_float_are_refused() -> None:
    with pytest.raises(UserError, match=r"--seed must be at least 0, got 1000"):
        check(RunConfig(seed=10**400))
