"""Flags of `proud evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proud.cli.flags.shared import RunFolder, WithAnswers, WithData, WithFiles
from proud.config import Switch, value


@dataclass(frozen=True)
class EvaluateArguments(WithAnswers, WithFiles, WithData):
    """Measure a trained model on one labeled domain. Coverage and risk are measured, too."""

    run: RunFolder
    """folder of a finished run"""
    domain: Annotated[
        str, value("SITE", "(default: the run's test domain; with --data, that folder of class folders)")
    ] = ""
    """the domain to measure on; its images need labels"""
    against: Annotated[str, value("RUN", "(optional)")] = ""
    """another run: the difference of accuracy on the same images, with its 95 % interval"""
    adapt: Switch = False
    """also classify all images together, as in predict --adapt, and compare both answers"""
    out: Annotated[str, value("FILE", "(optional)")] = ""
    """JSON file for all numbers, with model, data, versions, device and command; - is stdout"""
    overwrite: Switch = False
    """replace that file"""
