"""The files of a run and of a saved model: run.json, result.json, model.json and the tensors beside it."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import MOST_JSON_BYTES, MOST_LINES_BYTES, json_file, tensor_bytes
from proud.manifest import MANIFEST, Files, manifest_file
from proud.stamps import Stamp, sealed
from proud.stored import ResultRecord, RunRecord, TaskRecord, VerdictRecord
from proud.text import plain_cell
from proud.typed import as_record, parse_record, parse_sealed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from proud.nets.models import ModelSpec

RUN_FORMAT = "proud-run-2"  # proud-run-1 had neither checksum nor manifest
MODEL_FORMAT = "proud-model-2"  # proud-model-1 had no manifest
RESULT = "result.json"
FOUND_SITES = "sites.csv"
"""the site of every image of a pool"""
PROTOTYPES_FORMAT = "proud-prototypes-1"
DESCRIPTION, WEIGHTS, PROTOTYPES = "model.json", "model.safetensors", "prototypes.safetensors"
CARD = "README.md"
MODEL_FILES = {DESCRIPTION, WEIGHTS, PROTOTYPES, CARD, MANIFEST}
MODEL_FOLDER = "model"
"""in a run: it can be copied and used without the run"""


def model_folder(given: Path) -> Path:
    """The folder of a run's model, or `given` itself if that is a model's folder."""
    inside = given / MODEL_FOLDER
    return inside if Files(inside).has(DESCRIPTION) else given


def run_folder(given: Path) -> Path:
    """The folder of the run, whether it or its model's folder is given."""
    above = given.absolute().parent
    is_part = given.absolute().name == MODEL_FOLDER and not (given / "run.json").exists()
    return above if is_part and (above / "run.json").is_file() else given


def model_files(
    state: dict[str, Tensor],
    spec: ModelSpec,
    classes: Sequence[str],
    config: dict[str, Any],
    *,
    trust: dict[str, Any] | None = None,
    prototypes: dict[str, Tensor] | None = None,
    warnings: Sequence[str] = (),
    card: str = "",
) -> dict[str, bytes]:
    """All files of a model, the manifest last. `trust`: the calibration, as JSON. `card`: the text of README.md, which
    people may edit, so that it is not in the manifest."""
    about: dict[str, Any] = {"format": MODEL_FORMAT, "classes": list(classes), "spec": asdict(spec), "config": config}
    about |= {"warnings": list(warnings)} if warnings else {}
    files = {PROTOTYPES: tensor_bytes(prototypes, PROTOTYPES_FORMAT)} if prototypes else {}
    files[WEIGHTS] = tensor_bytes(state, MODEL_FORMAT)
    files[DESCRIPTION] = json_file(about | ({"trust": trust} if trust else {}))
    listed = manifest_file({name: Stamp.of(content) for name, content in files.items()})
    return files | ({CARD: card.encode()} if card else {}) | {MANIFEST: listed}


def run_file(about: dict[str, Any]) -> bytes:
    """run.json."""
    return json_file(sealed({**as_record({"format": RUN_FORMAT} | about, RunRecord)}))


def read_run(folder: Path, compare: bool = True) -> RunRecord:
    """run.json of a run or of its model's folder: its config and the description of its task. Without `compare` it is
    not compared with the manifest, only with the checksum that it holds."""
    folder = run_folder(folder)
    try:
        files = Files(folder, compare)
        content = files.read("run.json", MOST_JSON_BYTES)
        about = parse_record(content, RunRecord)
        about = parse_sealed(content, RunRecord) if about["format"] == RUN_FORMAT else about
        if files.run and about.get("id") != files.run:
            raise ValueError("it is of another run than the checkpoints")
        return about
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and (folder / DESCRIPTION).is_file():
            raise UserError(
                f"{folder} holds a saved model without the run that trained it: name the run's folder (that of --out; "
                "in Python, ProUD(out=...) keeps it)."
            ) from error
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error


def is_finished(folder: Path) -> bool:
    """The manifest is written last; runs of earlier versions have none."""
    if Files(folder).stamps is not None:
        return True
    return (folder / RESULT).exists() and read_run(folder)["format"] != RUN_FORMAT


def lost_manifest(folder: Path) -> bool:
    """Whether a run has a result without the manifest that is written with it."""
    if not os.path.lexists(folder / RESULT) or Files(folder).stamps is not None:
        return False
    return read_run(folder, compare=False)["format"] == RUN_FORMAT


def read_result(folder: Path) -> ResultRecord | None:
    """The result of a finished run; None if it is not finished, an error if it is not readable."""
    if not is_finished(folder):
        return None
    try:
        return parse_record(Files(folder).read(RESULT, MOST_JSON_BYTES), ResultRecord)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / RESULT} cannot be read ({error}).") from error


def read_verdicts(folder: Path) -> list[VerdictRecord]:
    """The verdict on each unlabeled domain; empty for a method without pseudo-labels."""
    files, name = Files(folder), "diagnosis.json"
    try:
        return parse_record(files.read(name, MOST_JSON_BYTES), list[VerdictRecord]) if files.has(name) else []
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / name} cannot be read ({error}).") from error


def read_found_sites(folder: Path) -> dict[str, str]:
    """Content of each image of a pool → the site that it was found to be in. Empty if the run has none."""
    files = Files(folder)
    try:
        text = files.read(FOUND_SITES, MOST_LINES_BYTES).decode() if files.has(FOUND_SITES) else ""
        return {row["content"]: plain_cell(row["site"]) for row in csv.DictReader(io.StringIO(text, newline=""))}
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise UserError(f"{folder / FOUND_SITES} cannot be read ({error}).") from error


def other_images(stored: TaskRecord, now: TaskRecord) -> list[str]:
    """Domains whose images or labels differ between two descriptions of a task."""
    was = stored.get("content", {})
    return [name for name, digest in now.get("content", {}).items() if was.get(name, digest) != digest]
