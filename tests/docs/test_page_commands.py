"""Every command in a block of shell on the pages is one that the parser takes, and every option in a text exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from proud.cli.main import COMMANDS, parsed
from proud.methods import METHODS, method_class

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_THE_READER = ("--data", "--from", "--root")
"""their values are files that a test does not have"""
OF_OTHERS = {"--gpus", "--rm", "--nproc-per-node", "--data-binary", "--height", "--help", "--version"}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")


def commands() -> Iterator[tuple[str, list[str]]]:
    """(page, words after `proud`); `…` stands for what a page leaves out."""
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = [word for word in shlex.split(line, comments=True) if word != "…"]
                if words[:1] == ["proud"] or "run" in words[1:2] or "torchrun" in words[:1]:
                    yield page.name, words[words.index("proud") + 1 :]


ALL = list(commands())


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{page}: {shlex.join(words)}" for page, words in ALL])
def test_a_command_is_parsed(page: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, *rest = words
    if name == "train":
        kept = [word for before, word in zip([name, *rest], rest, strict=False) if before not in OF_THE_READER]
        rest = [word for word in kept if word not in OF_THE_READER]
        rest += [] if "--labeled" in rest else ["--labeled", "pen"]
    parsed(name, rest)


def test_every_option_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    from _extension.commands import arguments
    from _extension.options import options_of

    kinds = [*(arguments(name)[0] for name in COMMANDS), *(method_class(name).Config for name in METHODS)]
    known = {
        found
        for kind in kinds
        for options in options_of(kind).values()
        for option in options
        for found in OPTION.findall(option.flag)
    }
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    for page in PAGES:
        named = set(OPTION.findall(page.read_text(encoding="utf-8")))
        assert {each for each in named - known - OF_OTHERS if f'"{each}"' not in scripts} == set(), page


def test_pre_commit_has_the_checks_of_make_lint() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    lint = {line.removesuffix(" .") for line in re.findall(r"\$\(BIN\)/(.*)", recipe)}
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert lint == set(re.findall(r"entry: \.venv/bin/([^,]*),", hooks))
