"""docs/methods/index.md: its example is run as it stands there, and it explains every setting of the methods."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from proud.cli.flags.train import parse_train
from proud.config import Options
from proud.methods import METHODS, method_class
from proud.methods.base import MethodConfig
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "index.md"


@pytest.fixture
def ninth(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's file, imported under its name, and the page's line in METHODS."""
    text = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(# src/proud/methods/entropy\.py\n.*?)```", text, re.DOTALL)
    (line,) = re.findall(r'^    ("entropy": \(.*\)),$', text, re.MULTILINE)
    assert len(source.splitlines()) <= 45
    module = ModuleType("proud.methods.entropy")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "docs/methods/index.md", "exec"), module.__dict__)
    for name, entry in eval("{" + line + "}").items():
        monkeypatch.setitem(METHODS, name, entry)
    return "entropy"


def test_the_example_trains_and_learns(ninth: str, tmp_path: Path) -> None:
    task = toy_task(unlabeled=1, per_class=8, test=1)
    options = Options(out=str(tmp_path / "run"), threads=1, quiet=True, device="cpu", eval_every=100)
    settings = toy_settings(ninth, pretrain_epochs=8, epochs=5, lr=0.01, batch_size=8)
    result = train(toy_run(ninth, task), settings, options, data=task)
    assert result["test_accuracy"] > 0.95
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_the_example_has_flags(ninth: str) -> None:
    found = parse_train(["--method", ninth, "--labeled", "pen", "--entropy-weight", "0.5"])
    assert found.settings.entropy_weight == 0.5


@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith("proud")])
def test_every_setting_is_explained(name: str) -> None:
    own = {field.name for field in fields(method_class(name).Config)} - {field.name for field in fields(MethodConfig)}
    text = PAGE.read_text(encoding="utf-8")
    assert [setting for setting in sorted(own) if f"`{setting}`" not in text] == []
