"""Flags of `proud export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from proud.cli.flags.shared import RunFolder, WithAnswers
from proud.config import Switch, value


@dataclass(frozen=True)
class ExportArguments(WithAnswers):
    """Write a trained model as a file that needs nothing of proud. It is kept only if it answers as the model does: the
    same labels, probabilities within 0.0001."""

    run: RunFolder
    """folder of a finished run, or of a saved model"""
    format: Literal["onnx", "torch", "timm"] = "onnx"
    """onnx: one file with preprocessing and calibration inside; torch: the same as a torch.export program; timm: a
    folder with the weights of a plain timm network"""
    out: Annotated[str, value("FILE", "(default: model.onnx, model.pt2 or model-timm)")] = ""
    """file to write; for timm, a folder"""
    check: Annotated[tuple[Path, ...], value("IMAGES ...", "(default: the run's own)")] = ()
    """images or folders to check the answers with"""
    overwrite: Switch = False
    """replace an earlier export"""
