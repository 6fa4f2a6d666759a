"""`proud export`: a saved model as a file for other programs, checked against the model before it is kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from proud.errors import UserError
from proud.files import check_output, replacing, sync_folder
from proud.held import PART, HeldFolder
from proud.model.answers import AnswerOptions
from proud.model.export.about import about_export
from proud.model.export.deployed import Deployed
from proud.model.export.parity import Parity, check_parity
from proud.model.export.plain_timm import CONFIG, TENSORS, read_timm, write_timm
from proud.model.export.programs import read_onnx, read_torch, write_onnx, write_torch
from proud.model.load import load_model
from proud.model.predict import Model

Format = Literal["onnx", "torch", "timm"]


def export_model(
    folder: Path,
    kind: Format,
    out: Path,
    *,
    options: AnswerOptions | None = None,
    images: Sequence[Path] = (),
    overwrite: bool = False,
) -> Parity:
    """Write the model of a run, or of a model's folder, to a file (for timm, a folder) without anything of ours.

    `images`: what it is checked with; by default the run's own.
    """
    options = options or AnswerOptions()
    model = load_model(folder, "cpu")
    if kind == "timm":
        return export_timm(model, folder, out, options, images, overwrite)
    check_output(out, overwrite)
    deployed, about = Deployed(model, options), about_export(model, folder, options)
    write, read = (write_onnx, read_onnx) if kind == "onnx" else (write_torch, read_torch)
    with replacing(out) as part:
        write(deployed, about, part)
        return check_parity(model, options, read(part, deployed), images)


def export_timm(
    model: Model, folder: Path, out: Path, options: AnswerOptions, images: Sequence[Path], overwrite: bool
) -> Parity:
    """Both files are made and checked elsewhere first. config.json is replaced last, and is away while the weights
    are replaced: a kill never leaves new weights under the earlier names of classes."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file: --format timm writes a folder.")
    with HeldFolder(out) as held:
        there = {name for name in held.names() if not PART.fullmatch(name)}
    if there - {CONFIG, TENSORS}:
        raise UserError(f"{out} has other files: choose another --out.")
    if there and not overwrite:
        raise UserError(f"{out} holds an exported model: choose another --out or add --overwrite.")
    with tempfile.TemporaryDirectory() as trial:
        write_timm(model, about_export(model, folder, options), Path(trial))
        found = check_parity(model, options, read_timm(Path(trial), model), images)
        with HeldFolder(out) as held:
            held.remove_parts()
        with replacing(out / CONFIG) as config, replacing(out / TENSORS) as tensors:
            shutil.copyfile(Path(trial) / CONFIG, config)
            shutil.copyfile(Path(trial) / TENSORS, tensors)
            (out / CONFIG).unlink(missing_ok=True)
            sync_folder(out)
    return found
