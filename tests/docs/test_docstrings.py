"""The examples in docstrings of the public API run, on a few tiny images and with single epochs."""

from __future__ import annotations

import doctest
import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import proud
from proud import ProUD
from proud.model.predict import Model
from toy import SIDE, toy_images, write_folders

SHORT = {"size": SIDE, "batch_size": 8, "views": 1, "threads": 1, "device": "cpu", "epochs": 1, "pretrain_epochs": 1}


class Short(ProUD):
    """Trains for single epochs, whatever an example says."""

    def fit(self, *images: Any, **more: Any) -> Short:
        self.set_params(**SHORT)
        return super().fit(*images, **more)


def examples() -> list[tuple[str, doctest.Example]]:
    public: dict[str, Callable[..., Any]] = {"load": proud.load, "ProUD": ProUD.__init__}
    for kind in (ProUD, Model):
        members = inspect.getmembers(kind, callable)
        public |= {f"{kind.__name__}.{name}": each for name, each in members if not name.startswith("_")}
    parser = doctest.DocTestParser()
    return [(name, each) for name, value in public.items() for each in parser.get_examples(inspect.getdoc(value) or "")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders and a run, under the names that the examples use."""
    root = tmp_path_factory.mktemp("examples")
    write_folders(root / "data", {"central": 0, "north": 1, "south": 2, "west": 3}, per_class=4)
    write_folders(root, {"new_images": 4}, per_class=1)
    for name, path in zip(("a.png", "b.png"), sorted(root.glob("new_images/*/*")), strict=False):
        shutil.copy(path, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        ProUD(out=str(root / "runs" / "x"), verbose=False, **SHORT).fit(
            root / "data" / "central", unlabeled=[root / "data" / "north"]
        )
    proud.load(root / "runs" / "x").save(root / "mine")
    return root


@pytest.mark.filterwarnings("ignore::UserWarning")  # about networks that have learned nothing yet
def test_examples_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    found = examples()
    assert {"load", "ProUD", "ProUD.fit", "ProUD.predict_table", "Model.save"} <= {name for name, _ in found}
    (images, y), (more, _), (new, new_y) = (toy_images(look, 4) for look in (0, 1, 2))
    fitted = ProUD.from_pretrained("mine")
    given = {"images": images, "y": y, "more_images": more, "new_images": new, "new_labels": new_y}
    for name, example in found:
        shutil.rmtree("elsewhere", ignore_errors=True)
        if "save(" in example.source and name == "ProUD.save":
            shutil.rmtree("mine")
        names = {"proud": proud, "ProUD": Short, "model": fitted, "pandas": pandas, "np": np, **given}
        try:
            result = eval(example.source, names)
        except SyntaxError:
            exec(example.source, names)
            continue
        if example.want and "new_images" not in example.source:
            assert repr(result).replace("Short(", "ProUD(") == example.want.strip(), name
