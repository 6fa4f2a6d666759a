"""The Dockerfile, without Docker: its instructions, arguments and files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """(name, rest) of each instruction, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def of(instructions: list[tuple[str, str]], name: str) -> list[str]:
    return [rest for each, rest in instructions if each == name]


def test_instructions_are_known_and_in_order(instructions: list[tuple[str, str]]) -> None:
    names = [name for name, _ in instructions]
    assert set(names) <= INSTRUCTIONS
    assert names[:2] == ["ARG", "FROM"] and names[-2:] == ["ENTRYPOINT", "CMD"]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")  # not as root


def test_arguments_are_declared_before_their_use_and_in_their_stage(instructions: list[tuple[str, str]]) -> None:
    declared: set[str] = set()
    for name, rest in instructions:
        assert set(re.findall(r"\$\{(\w+)\}", rest)) <= declared, rest
        if name == "ARG":
            assert "=" in rest, "an argument needs a default"
            declared.add(rest.partition("=")[0])
        elif name == "FROM":
            declared.clear()


def test_files_exist_and_are_sent_to_the_builder(instructions: list[tuple[str, str]]) -> None:
    sources = [word for rest in of(instructions, "COPY") for word in rest.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources and all((ROOT / source).exists() for source in sources)
    assert ignored[0] == "*" and {f"!{source}" for source in sources} <= set(ignored)


def test_the_project_has_its_extras_and_its_command(instructions: list[tuple[str, str]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = (rest.partition("=")[2] for rest in of(instructions, "ARG") if rest.startswith("EXTRAS="))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (command,) = json.loads(of(instructions, "ENTRYPOINT")[0])
    assert command in project["scripts"]
    needed = {project["readme"], *project["license-files"], "pyproject.toml"}
    assert needed <= {word for rest in of(instructions, "COPY") for word in rest.split()}
