"""Flags of `proud review`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from proud.cli.flags.shared import Device, RunFolder, WithData, WithServer
from proud.config import Count, value


@dataclass(frozen=True)
class ReviewArguments(WithServer, WithData):
    """Open a local page to check and correct the predictions of a model: the images of each site, the most uncertain
    first, with the reasons for each prediction. Labels are saved at once, for proud train --labels FILE."""

    run: RunFolder
    """folder of a finished run"""
    folders: Annotated[Positional[tuple[Path, ...]], value("FOLDER ...", "(default: the run's unlabeled sites)")] = ()
    """folders of images, each of them a site"""
    out: Annotated[Path, value("FILE")] = Path("labels.csv")
    """CSV file for the labels; those that are in it already are kept"""
    k: Count = 20
    """labels per site to aim at, as in `proud label-next`"""
    device: Device = "auto"
    """where to compute"""
    port: Annotated[int, value("INT", "(default: a free one)")] = 0
    """port to listen on"""
