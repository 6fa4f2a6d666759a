"""The files of a run and of a saved model: run.json, result.json, model.json and the tensors beside it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import read_json, replacing, write_json, write_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from proud.nets.models import ModelSpec

RUN_FORMAT = "proud-run-1"
MODEL_FORMAT = "proud-model-2"
PLAIN_NAMES_FORMAT = "proud-model-1"  # blended batch norms had the names of plain ones
PROTOTYPES_FORMAT = "proud-prototypes-1"
DESCRIPTION, WEIGHTS, PROTOTYPES = "model.json", "model.safetensors", "prototypes.safetensors"
MODEL_FILES = {DESCRIPTION, WEIGHTS, PROTOTYPES}
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
) -> None:
    """`trust`: the calibration, as JSON. The description is written last."""
    if prototypes:
        with replacing(folder / PROTOTYPES) as part:
            write_tensors(part, prototypes, PROTOTYPES_FORMAT)
    with replacing(folder / WEIGHTS) as part:
        write_tensors(part, state, MODEL_FORMAT)
    about = {"format": MODEL_FORMAT, "classes": list(classes), "spec": asdict(spec), "config": config}
    about |= {"warnings": list(warnings)} if warnings else {}
    write_json(folder / DESCRIPTION, about | ({"trust": trust} if trust else {}))


def read_run(folder: Path) -> dict[str, Any]:
    """run.json of a run or of its model's folder: its config and the description of its task."""
    folder = run_folder(folder)
    path = folder / "run.json"
    try:
        about = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error
    if not isinstance(about, dict) or about.get("format") != RUN_FORMAT:
        raise UserError(f"{path} is not a run's description (format {RUN_FORMAT}).")
    task: Any = about.get("task")
    domains: Any = task.get("domains") if isinstance(task, dict) and "classes" in task else None
    whole = isinstance(about.get("config"), dict) and isinstance(about.get("threads", 0), int)
    if not whole or not isinstance(domains, dict) or not all(isinstance(each, dict) for each in domains.values()):
        raise UserError(f"{path} is damaged: settings or data of the run are missing.")
    return about


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None if it is not finished or not readable."""
    try:
        found = read_json(folder / "result.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def other_images(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Domains whose images or labels differ between two descriptions of a task."""
    was = stored.get("content")
    if not isinstance(was, dict):
        return []
    return [name for name, digest in now.get("content", {}).items() if was.get(name, digest) != digest]
