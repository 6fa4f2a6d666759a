"""The reference of the settings: those of every method, and their values for each kind of data."""

from __future__ import annotations

from typing import Any

from _extension.options import Option, cell, code, options_of, table
from proud.methods import METHODS, method_class, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import CPU_BATCH, CPU_SIZE, OWN, PRESETS

HEADER = ["setting", "type", "default", "meaning"]
KINDS = {"photos": "own photographs", "small": "own small images"}


def settings() -> str:
    """Shared by all methods, then those of each one."""
    shared = options_of(MethodConfig)[""]
    parts = ["## All methods", table("options", HEADER, [row(option) for option in shared])]
    for kind, names in classes().items():
        own = [option for option in options_of(kind)[""] if option not in shared]
        parts += [f"## {' · '.join(f'`{name}`' for name in names)}", fixed(names)]
        parts.append(table("options", HEADER, [row(option) for option in own]) if own else "No further settings.")
    return "\n\n".join(filter(None, parts)) + "\n"


def classes() -> dict[type, list[str]]:
    """The class of the settings → the names of its methods."""
    found: dict[type, list[str]] = {}
    for name in METHODS:
        found.setdefault(method_class(name).Config, []).append(name)
    return found


def fixed(names: list[str]) -> str:
    """What the names of variants mean."""
    said = [
        f"`{name}` is `{names[0]}` with {' and '.join(f'`{key}={value}`' for key, value in METHODS[name][1].items())}."
        for name in names
        if METHODS[name][1]
    ]
    return " ".join(said)


def row(option: Option) -> list[str]:
    default = {"on": "`True`", "off": "`False`"}.get(option.default, option.default)
    return [code(option.name), cell(option.kind), cell(default), cell(option.text)]


def presets() -> str:
    """One column per kind of data."""
    names = list(dict.fromkeys(key for values in PRESETS.values() for key in values))
    header = ["setting", *(KINDS.get(data, f"`{data}`") for data in PRESETS)]
    text = table("presets", header, [[f"`{name}`", *(value(data, name) for data in PRESETS)] for name in names])
    for method, changes in OWN.items():
        keys = list(dict.fromkeys(key for values in changes.values() for key in values))
        columns = [data for data in PRESETS if data in changes]
        rows = [[f"`{key}`", *(str(changes[data].get(key, "")) for data in columns)] for key in keys]
        header = ["setting", *(KINDS.get(data, f"`{data}`") for data in columns)]
        text += f"\n`{method}` differs in:\n\n" + table("presets", header, rows)
    return text + f"\nOn a CPU, own photographs are trained on at {CPU_SIZE} pixels in batches of {CPU_BATCH}.\n"


def value(data: str, name: str) -> Any:
    return str(PRESETS[data].get(name, getattr(method_config("proud"), name)))
