"""Flags of `proud label-next`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from proud.cli.flags.shared import RunFolder, WithData, WithFiles
from proud.config import Switch, value


@dataclass(frozen=True)
class LabelNextArguments(WithFiles, WithData):
    """Choose the images of each unlabeled site whose labels would help most. Fill in the column `label`, then train
    with: proud train … --labels FILE."""

    run: RunFolder
    """folder of a finished run"""
    k: int = 20
    """images per site"""
    out: Annotated[Path, value("FILE")] = Path("extra.csv")
    """CSV file to write, or - for stdout: path, domain, label (empty), guess, uncertainty, content"""
    overwrite: Switch = False
    """replace that file"""
