"""The files of a run and of a saved model: run.json, result.json, model.json and the tensors beside it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import replacing, write_json, write_tensors
from proud.stored import ResultRecord, RunRecord, TaskRecord, VerdictRecord
from proud.typed import read_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from proud.nets.models import ModelSpec

RUN_FORMAT = "proud-run-1"
MODEL_FORMAT = "proud-model-2"
PLAIN_NAMES_FORMAT = "proud-model-1"  # blended batch norms had the names of plain ones
PROTOTYPES_FORMAT = "proud-prototypes-1"
DESCRIPTION, WEIGHTS, PROTOTYPES = "model.json", "model.safetensors", "prototypes.safetensors"
CARD = "README.md"
MODEL_FILES = {DESCRIPTION, WEIGHTS, PROTOTYPES, CARD}
MODEL_FOLDER = "model"
"""in a run: it can be copied and used without the run"""


def model_folder(given: Path) -> Path:
    """The folder of a run's model, or `given` itself if that is a model's folder."""
    inside = given / MODEL_FOLDER
    return inside if (inside / DESCRIPTION).is_file() else given


def run_folder(given: Path) -> Path:
    """The folder of the run, whether it or its model's folder is given."""
    above = given.absolute().parent
    is_part = given.absolute().name == MODEL_FOLDER and not (given / "run.json").exists()
    return above if is_part and (above / "run.json").is_file() else given


def write_model(
    folder: Path,
    state: dict[str, Tensor],
    spec: ModelSpec,
    classes: Sequence[str],
    config: dict[str, Any],
    *,
    trust: dict[str, Any] | None = None,
    prototypes: dict[str, Tensor] | None = None,
    warnings: Sequence[str] = (),
    card: str = "",
) -> None:
    """`trust`: the calibration, as JSON. `card`: the text of README.md. The description is written last."""
    if card:
        with replacing(folder / CARD) as part:
            part.write_text(card, encoding="utf-8")
    if prototypes:
        with replacing(folder / PROTOTYPES) as part:
            write_tensors(part, prototypes, PROTOTYPES_FORMAT)
    with replacing(folder / WEIGHTS) as part:
        write_tensors(part, state, MODEL_FORMAT)
    about = {"format": MODEL_FORMAT, "classes": list(classes), "spec": asdict(spec), "config": config}
    about |= {"warnings": list(warnings)} if warnings else {}
    write_json(folder / DESCRIPTION, about | ({"trust": trust} if trust else {}))


def read_run(folder: Path) -> RunRecord:
    """run.json of a run or of its model's folder: its config and the description of its task."""
    folder = run_folder(folder)
    try:
        return read_record(folder / "run.json", RunRecord)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error


def read_result(folder: Path) -> ResultRecord | None:
    """The result of a finished run; None if it is not finished or not readable."""
    try:
        return read_record(folder / "result.json", ResultRecord)
    except (OSError, ValueError):
        return None


def stored_result(folder: Path) -> ResultRecord | None:
    """The same for who cannot compute it again: None if the run is not finished, an error if it is not readable."""
    path = folder / "result.json"
    try:
        return read_record(path, ResultRecord) if path.exists() else None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}).") from error


def read_verdicts(folder: Path) -> list[VerdictRecord]:
    """The verdict on each unlabeled domain; empty for a method without pseudo-labels."""
    path = folder / "diagnosis.json"
    if not path.exists():
        return []
    try:
        return read_record(path, list[VerdictRecord])
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}).") from error


def other_images(stored: TaskRecord, now: TaskRecord) -> list[str]:
    """Domains whose images or labels differ between two descriptions of a task."""
    was = stored.get("content", {})
    return [name for name, digest in now.get("content", {}).items() if was.get(name, digest) != digest]
