"""The commands of the first pages, one by one as they stand there, on a few tiny images and with single epochs."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

import proud
from proud.cli import main as cli
from toy import write_folders

ROOT = Path(__file__).parents[2]
SHORT = {"size": 16, "batch_size": 8, "views": 1, "device": "cpu", "threads": 1, "epochs": 1, "pretrain_epochs": 1}
FLAGS = [word for name, value in SHORT.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.partition("## Your own images")[2] or text
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(page: str, places: dict[str, str]) -> None:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert lines
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        assert program == "proud"
        words = [places.get(word, word) for word in words]
        if words[0] == "train":
            words = [*without_lengths(words), *FLAGS]
        assert cli.run(words) == 0, line


def without_lengths(words: list[str]) -> list[str]:
    return shlex.split(re.sub(r"--(epochs|pretrain-epochs|batch-size) \d+", "", shlex.join(words)))


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_figures: None) -> Path:
    write_folders(tmp_path / "sites", {"central": 0, "north": 1, "south": 2}, per_class=10)
    write_folders(tmp_path, {"new_site": 3}, per_class=2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    return tmp_path


def labels_of(table: Path) -> list[str]:
    return [line.split(",")[1] for line in table.read_text(encoding="utf-8").splitlines()[1:]]


def test_the_commands_of_the_readme(sites: Path) -> None:
    run("README.md", {"ROOT": "sites", "NEW_IMAGES": "new_site"})
    assert set(labels_of(sites / "predictions.csv")) <= {"across", "checks", "down", "plain"}
    assert len(labels_of(sites / "predictions.csv")) == 8
    assert (sites / "next.csv").is_file()


def test_the_commands_of_the_first_run(sites: Path) -> None:
    run("docs/start/own-folders.md", {})
    assert len(labels_of(sites / "predictions.csv")) == 8
    assert (sites / "first.html").is_file() and (sites / "next.csv").is_file()


@pytest.mark.filterwarnings("ignore::UserWarning")  # about a network that has learned nothing yet
def test_the_python_of_the_readme(sites: Path) -> None:
    (source,) = blocks("README.md", "python")
    source = source.replace("ROOT/", "sites/").replace("NEW_IMAGES", "new_site")
    source = source.replace("ProUD()", f"ProUD(**{SHORT!r})")
    found: dict = {}
    exec(compile(source, "README.md", "exec"), found)
    assert isinstance(found["model"], proud.ProUD)
    assert (sites / "mine" / "model.json").is_file()
