"""docs/methods: each method has a page, which explains its settings with their values; the tutorial's method trains."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from proud.config import Options
from proud.methods import METHODS, method_class, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import PRESETS
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

DOCS = Path(__file__).parents[2] / "docs"
FAMILIES = {method_class(name): name for name in reversed(METHODS)}
"""the first name of each method"""


def page(name: str) -> str:
    return (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture
def entropy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The method of the tutorial, imported under its name."""
    text = (DOCS / "tutorials" / "adding_a_method.py").read_text(encoding="utf-8")
    source = text.split("# %%\n")[1].split("# %% [markdown]")[0]
    assert len(source.strip().splitlines()) <= 45
    module = ModuleType("entropy")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "adding_a_method.py", "exec"), module.__dict__)
    monkeypatch.setitem(METHODS, "entropy", ("entropy:Entropy", {}))
    return "entropy"


def test_the_tutorials_method_learns(entropy: str, tmp_path: Path) -> None:
    task = toy_task(unlabeled=1, per_class=8, test=1)
    options = Options(out=str(tmp_path / "run"), threads=1, quiet=True, device="cpu", eval_every=100)
    settings = toy_settings(entropy, pretrain_epochs=8, epochs=5, lr=0.01, batch_size=8)
    result = train(toy_run(entropy, task), settings, options, data=task)
    assert result["test_accuracy"] > 0.95
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", FAMILIES.values())
def test_every_setting_is_explained(name: str) -> None:
    text = page(name)
    assert [setting for setting in own_settings(name) if f"`{setting}`" not in text] == []


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_named(name: str) -> None:
    assert f"`{name}`" in page(FAMILIES[method_class(name)]).splitlines()[2]


@pytest.mark.parametrize("name", FAMILIES.values())
def test_values_of_settings_are_those_of_the_code(name: str) -> None:
    """In rows `| names | values |` of the table of settings, in the order of the names."""
    config, wrong = method_config(name), []
    by_data = {setting for values in PRESETS.values() for setting in values}
    table = page(name).split("## Settings")[1].split("\n## ")[0]
    for names, values in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        settings = [
            each for each in re.findall(r"`(\w+)`", names) if each in own_settings(name) and each not in by_data
        ]
        wrong += [each for each in settings if not (said(getattr(config, each)) & words(values))]
    assert wrong == []


def own_settings(name: str) -> list[str]:
    """Those that it declares, beside the settings of all methods and of the method that it extends."""
    kind = method_class(name).Config
    others = {MethodConfig, *(method.Config for method in FAMILIES)} - {kind}
    inherited = {field.name for base in kind.__mro__ if base in others for field in fields(base)}
    return [field.name for field in fields(kind) if field.name in kind.__annotations__ or field.name not in inherited]


def said(value: object) -> set[str]:
    """How a page writes a value."""
    if isinstance(value, bool):
        return {"on", "yes"} if value else {"off"}
    if isinstance(value, int | float):
        return {f"{value:g}", f"{value:,}", str(Fraction(value).limit_denominator(10))}
    return {str(value)}


def words(text: str) -> set[str]:
    return {word.strip("`,.:;()") for word in text.split()}
