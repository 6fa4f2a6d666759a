"""The reference of the command: every command with all its options, from the classes that are parsed."""

from __future__ import annotations

from importlib import import_module

from _extension.options import Option, cell, code, options_of, table
from proud.cli.flags.train import First
from proud.cli.main import COMMANDS

HEADER = ["option", "default", "meaning"]
TRAIN = """Train a model on one labeled domain and all the others without their labels. The settings of the method
(`--epochs`, `--lr`, …) are options, too: [all settings of all methods](settings.md). For the defaults of your data,
method and device: `proud train --data DATA --method NAME --help`."""


def commands() -> str:
    return "\n".join(section(name) for name in COMMANDS)


def section(name: str) -> str:
    """One command."""
    kind, text = arguments(name)
    groups = options_of(kind)
    needed = [
        option.flag
        for options in groups.values()
        for option in options
        if option.default == "required" or not option.flag.startswith("--")
    ]
    usage = " ".join(["proud", name, *needed, "[options]"])
    parts = [f"## proud {name}", f"```text\n{usage}\n```", cell(text)]
    for title, options in groups.items():
        parts += [cell(title), table("options", HEADER, [row(option) for option in options])]
    return "\n\n".join(filter(None, parts)) + "\n"


def arguments(name: str) -> tuple[type, str]:
    """The class of a command's options, and what the command does."""
    command = COMMANDS[name]
    found = getattr(import_module(f"proud.cli.flags.{command.module}"), command.flags)
    return (found, " ".join((found.__doc__ or "").split())) if isinstance(found, type) else (First, TRAIN)


def row(option: Option) -> list[str]:
    return [code(option.flag), cell(option.default), cell(option.text)]
