"""The command that `proud review` offers trains as the run was trained, with the labels."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path

import pytest

from proud.cli import main as cli
from proud.cli.flags.train import parse_train
from proud.cli.next_command import next_command
from proud.cli.review import apart
from proud.config import flat
from proud.errors import UserError
from proud.model.format import read_run


def test_it_repeats_all_settings(trained: Path, tmp_path: Path) -> None:
    config = read_run(trained)["config"]
    command = next_command(config, trained, tmp_path / "my labels.csv")
    program, name, *words = shlex.split(command)
    assert (program, name) == ("proud", "train")
    found = parse_train([*words, "--device", "cpu", "--threads", "1"])
    assert found.options.out == str(trained.with_name("x-2"))
    assert flat(found.run, found.settings) == config | {"labels": str(tmp_path / "my labels.csv")}


def test_a_method_that_cannot_use_labels_is_replaced(trained: Path, tmp_path: Path) -> None:
    config = read_run(trained)["config"] | {"method": "erm", "method_config": {"epochs": 77}}
    command = next_command(config, trained, tmp_path / "labels.csv")
    assert "--method erm" not in command
    assert "77" not in command
    assert parse_train(shlex.split(command)[2:]).run.method == "proud-plus"


def test_a_folder_that_exists_is_not_proposed(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "run-2").mkdir()
    command = next_command(read_run(trained)["config"], tmp_path / "run", tmp_path / "labels.csv")
    assert shlex.split(command)[-2:] == ["--out", str(tmp_path / "run-3")]


def test_errors_of_the_process_that_looks_at_images_arrive() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        apart(partial(int, "x"))
    with pytest.raises(UserError, match="was killed"):
        apart(partial(os._exit, 9))


def test_review_refuses_what_it_could_damage(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    table = tmp_path / "labels.csv"
    table.write_text("name,colour\nx,red\n")
    with pytest.raises(UserError, match="lacks the columns path, domain, label"):
        cli.run(["review", str(trained), "--out", str(table)])
    with pytest.raises(UserError, match="does not hold a run"):
        cli.run(["review", str(tmp_path), "--out", str(tmp_path / "new.csv")])
    assert table.read_text() == "name,colour\nx,red\n"
    assert not (tmp_path / "new.csv").exists()
