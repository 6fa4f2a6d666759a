"""Checkpoints at epoch boundaries: safetensors and JSON, written atomically, with checksums; the last two are kept."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.files import (
    MOST_TENSOR_BYTES,
    parse_tensors,
    read_regular,
    remove_parts,
    replacing,
    user_errors,
    write_json,
    write_tensors,
)
from proud.stored import CheckpointRecord, Settings
from proud.text import one_line
from proud.typed import read_record

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import Method, Stage

KEPT = 2
FORMAT = "proud-checkpoint-2"


@dataclass(frozen=True)
class Position:
    """A run's progress: `epoch` epochs of stage number `stage` are done, `records` lines are written."""

    stage: int = 0
    epoch: int = 0
    records: int = 0


def save_checkpoint(folder: Path, state: dict[str, Tensor], position: Position, config: dict[str, Any]) -> None:
    name = f"checkpoint-{position.records:06d}"
    with replacing(folder / f"{name}.safetensors") as part:
        write_tensors(part, state, FORMAT)
        digest = _sha256(part)
    # the JSON file makes the checkpoint valid: it is written last
    write_json(
        folder / f"{name}.json", {"format": FORMAT, "sha256": digest, "position": asdict(position), "config": config}
    )
    remove_old(folder)


def remove_old(folder: Path) -> None:
    """Remove all but the last two, and tensors without a description, left by a killed process."""
    with user_errors(folder):
        for old in sorted(folder.glob("checkpoint-*.json"))[:-KEPT]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)
        described = {path.stem for path in folder.glob("checkpoint-*.json")}
        for path in folder.glob("checkpoint-*.safetensors"):
            if path.stem not in described:
                path.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], Position, Settings] | None:
    """The newest intact checkpoint, or None if there is none. A damaged one is skipped with a warning, and removed once
    an intact one is found, so that it does not count as one of the two that are kept."""
    remove_parts(folder)
    remove_old(folder)
    descriptions = sorted(folder.glob("checkpoint-*.json"), reverse=True)
    for number, path in enumerate(descriptions):
        try:
            found = read_checkpoint(path)
        except (OSError, ValueError) as error:
            warnings.warn(f"{path.name} is damaged ({error}); trying the previous one", stacklevel=2)
            continue
        for damaged in descriptions[:number]:
            damaged.unlink(missing_ok=True)
            damaged.with_suffix(".safetensors").unlink(missing_ok=True)
        return found
    if descriptions:
        raise UserError(f"{folder}: no intact checkpoint among {len(descriptions)}. Start again with --overwrite.")
    return None


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Position, Settings]:
    """OSError or ValueError if it is damaged."""
    meta = read_record(path, CheckpointRecord)
    data = read_regular(path.with_suffix(".safetensors"), MOST_TENSOR_BYTES)
    if hashlib.sha256(data).hexdigest() != meta["sha256"]:
        raise ValueError("the checksum does not match")
    return parse_tensors(data), Position(**meta["position"]), meta["config"]


def load_into(method: Method, state: dict[str, Tensor], folder: Path) -> None:
    """A checkpoint with a valid checksum may still belong to another network."""
    try:
        method.load_state_dict(state)
        for optimizer in method.optimizers().values():
            for parameter, values in optimizer.state.items():
                if any(value.ndim and value.shape != parameter.shape for value in values.values()):
                    raise ValueError("an optimizer's state has another shape than its weights")
    except (RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        text = one_line(error)
        raise UserError(f"The checkpoint in {folder} does not fit this run: {text}. Start with --overwrite.") from error


def check_position(position: Position, stages: list[Stage], folder: Path) -> None:
    """One record per finished epoch, and no more epochs than there are."""
    done = sum(stage.epochs for stage in stages[: position.stage]) + position.epoch
    inside = position.stage < len(stages) and position.epoch <= stages[position.stage].epochs
    if not inside or position.records != done:
        raise UserError(f"The checkpoint position in {folder} is inconsistent with this run. Start with --overwrite.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
