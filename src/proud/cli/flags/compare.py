"""Flags of `proud compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from proud.cli.flags.shared import WithFiles
from proud.config import Switch, value


@dataclass(frozen=True)
class CompareArguments(WithFiles):
    """Find out which of two models is better at a site without labels. Writes a table of at most 50 images on which
    they disagree; with the column `label` filled in, --labels gives the verdict, without reading the images again."""

    first: Annotated[Positional[Path], value("RUN_A")]
    """folder of a finished run"""
    second: Annotated[Positional[Path], value("RUN_B")]
    """folder of another one, with the same classes"""
    images: Annotated[Positional[Path], value("FOLDER")]
    """the site's images, at any depth"""
    labels: Annotated[str, value("FILE", "(optional)")] = ""
    """the table, filled in; the record beside it (.json) is read, too"""
    out: Annotated[Path, value("FILE")] = Path("compare.csv")
    """CSV file to write: path, domain, label (empty), content; beside it a page of pictures (.html) and the record for
    --labels (.json)"""
    overwrite: Switch = False
    """replace these files"""
