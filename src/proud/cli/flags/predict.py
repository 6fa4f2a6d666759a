"""Flags of `proud predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from proud.cli.flags.shared import RunFolder, WithAnswers, WithFiles
from proud.config import Switch, value


@dataclass(frozen=True)
class PredictArguments(WithAnswers, WithFiles):
    """Classify images with a trained model. With --skip-bad, FILE-left-out.csv lists the skipped images."""

    run: RunFolder
    """folder of a finished run"""
    images: Annotated[Positional[tuple[Path, ...]], value("IMAGES ...", "(required)")] = ()
    """image files, or folders that are searched to any depth; -: a list of paths on stdin, one per line"""
    out: Annotated[Path, value("FILE")] = Path("predictions.csv")
    """CSV file to write, or - for stdout: path, label, confidence and, if the model has them, set, abstain"""
    adapt: Switch = False
    """classify all images together, as images of one site, without training; column `plain`: the label of each alone"""
    probabilities: Switch = False
    """also write the probability of every class, in columns p(CLASS)"""
    overwrite: Switch = False
    """replace that file, and the table of skipped images beside it"""
