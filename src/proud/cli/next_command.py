"""The command that trains again as a run was trained, with added labels."""

from __future__ import annotations

import shlex
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from proud.cli.flags.train import default_settings
from proud.config import Options, RunConfig, flag
from proud.methods import METHODS, method_class

BETTER = "proud-plus"


def method_for_labels(name: str) -> str:
    """The method itself or, if it cannot use added labels, one that can."""
    return name if name not in METHODS or method_class(name).uses_known_labels else BETTER


def next_command(config: dict[str, Any], folder: Path, labels: Path) -> str:
    """`proud train …` for a shell, with all settings that differ from their defaults."""
    run = RunConfig.from_stored(config)
    method = method_for_labels(run.method)
    words = ["proud", "train"]
    wanted = replace(run, method=method, labels=str(labels))
    plain = RunConfig()
    for field in fields(RunConfig):
        given = getattr(wanted, field.name)
        if given != getattr(plain, field.name) or field.name == "data":
            words += option(field.name, given)
    if method == run.method:
        stored, usual = config.get("method_config", {}), asdict(default_settings(run, Options(), lenient=True).settings)
        fixed = METHODS[method][1] if method in METHODS else {}
        for name, given in stored.items():
            if name in usual and name not in fixed and given != usual[name]:
                words += option(name, given)
    return shlex.join([*words, "--out", unused_folder(folder)])


def option(name: str, given: Any) -> list[str]:
    if isinstance(given, bool):
        return [flag(name) if given else flag(f"no_{name}")]
    values = given if isinstance(given, list | tuple) else [given]
    return [flag(name), *map(str, values)]


def unused_folder(folder: Path) -> str:
    """runs/x-2 after runs/x."""
    number = 2
    while (again := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return str(again)
