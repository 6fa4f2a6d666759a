"""Flags of `proud export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from proud.cli.flags.shared import RunFolder, WithAnswers
from proud.config import Switch, value


@dataclass(frozen=True)
class ExportArguments(WithAnswers):
    """Write a trained model to a file that is used without proud. The file is kept only if its answers equal those of
    the model: the same labels, probabilities within 0.0001."""

    run: RunFolder
    """folder of a finished run, or of a saved model"""
    format: Literal["onnx", "torch", "timm"] = "onnx"
    """`onnx`: a file with preprocessing and calibration; `torch`: the same for torch.export; `timm`: weights alone"""
    out: Annotated[str, value("FILE", "(default: model.onnx, model.pt2 or model-timm)")] = ""
    """file to write; for timm, a folder"""
    check: Annotated[tuple[Path, ...], value("IMAGES ...", "(default: the run's own)")] = ()
    """images or folders to check the answers with"""
    overwrite: Switch = False
    """replace an earlier export"""
