"""The command `proud label-next`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from proud.config import Switch, word

DESCRIPTION = (
    "Choose the images of each unlabeled site whose labels would help most. Fill in the column `label` by hand, then "
    "train with: proud train … --labels FILE."
)


@dataclass(frozen=True)
class LabelNextArguments:
    run: Annotated[Positional[Path], word("RUN")]
    """folder of a finished run"""
    data: Annotated[str, word("DATA", "(default: the run's own data)")] = ""
    """folder, CSV file, benchmark or `embedded`"""
    root: Annotated[str, word("DIR", "(for benchmarks only)")] = ""
    """where a named benchmark is unpacked"""
    k: int = 20
    """images per site"""
    out: Annotated[Path, word("FILE")] = Path("extra.csv")
    """CSV file to write: path, domain, label (empty), guess, uncertainty, content"""
    overwrite: Switch = False
    """replace that file if it is there"""
    skip_bad: Switch = False
    """leave out images that cannot be read"""
    device: Annotated[str, word("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute"""


def label_next_command(argv: list[str]) -> int:
    from proud.cli.main import parse

    arguments = parse(LabelNextArguments, argv, "label-next", DESCRIPTION)
    from rich.markup import escape

    from proud.cli.show import console
    from proud.model.label_next import suggest

    counts, method = suggest(arguments)
    sites = ", ".join(f"{escape(name)} {count}" for name, count in counts.items())
    console.print(f"{sites} → {escape(str(arguments.out))}")
    console.print(
        "Fill in the column label (the guess is the model's, and may be wrong), then: "
        f"[bold]proud train … {method}--labels {escape(shlex.quote(str(arguments.out)))}[/bold]",
        soft_wrap=True,
    )
    return 0
