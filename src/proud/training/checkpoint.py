"""Checkpoints at epoch boundaries: safetensors and JSON, written atomically, with checksums; the last two are kept."""

from __future__ import annotations

import hashlib
import re
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proud.errors import UserError
from proud.files import MOST_JSON_BYTES, MOST_TENSOR_BYTES, json_file, parse_tensors, tensor_bytes
from proud.held import HeldFolder
from proud.stamps import Stamp, sealed
from proud.stored import CheckpointRecord, Settings
from proud.text import one_line
from proud.typed import parse_sealed

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import Method, Stage

KEPT = 2
FORMAT = "proud-checkpoint-3"
NAME = re.compile(r"checkpoint-\d{6}\.(json|safetensors)")


@dataclass(frozen=True)
class Position:
    """A run's progress: `epoch` epochs of stage number `stage` are done, `records` lines are written."""

    stage: int = 0
    epoch: int = 0
    records: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """`run`: the id of the run it belongs to; `stamps`: size and digest of each file that the run had written."""

    state: dict[str, Tensor]
    position: Position
    config: Settings
    run: str = ""
    stamps: dict[str, Stamp] = field(default_factory=dict)


def is_checkpoint(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def save_checkpoint(folder: HeldFolder, saved: Checkpoint) -> None:
    name = f"checkpoint-{saved.position.records:06d}"
    content = tensor_bytes(saved.state, FORMAT)
    folder.write(f"{name}.safetensors", content)
    about = {key: value for key, value in vars(saved).items() if key != "state"}
    about |= {"format": FORMAT, "sha256": hashlib.sha256(content).hexdigest(), "position": asdict(saved.position)}
    # the JSON file makes the checkpoint valid: it is written last
    folder.write(f"{name}.json", json_file(sealed(about)))
    remove_old(folder)


def remove_old(folder: HeldFolder) -> None:
    """Remove all but the last two, and tensors without a description, left by a killed process."""
    ours = [name for name in folder.names() if is_checkpoint(name)]
    kept = [name.removesuffix(".json") for name in ours if name.endswith(".json")][-KEPT:]
    folder.remove(*(name for name in ours if name.partition(".")[0] not in kept and name.endswith(".json")))
    folder.remove(*(name for name in ours if name.partition(".")[0] not in kept))


def load_checkpoint(folder: HeldFolder, run: str = "") -> Checkpoint | None:
    """The newest intact checkpoint of a run, or None if there is none. A damaged one is skipped with a warning, and
    removed once an intact one is found, so that it does not count as one of the two that are kept."""
    folder.remove_parts()
    remove_old(folder)
    names = [name.removesuffix(".json") for name in folder.names() if is_checkpoint(name) and name.endswith(".json")]
    for number, name in enumerate(reversed(names)):
        try:
            found = read_checkpoint(folder, name, run)
        except (OSError, ValueError) as error:
            warnings.warn(f"{name}.json is damaged ({error}); trying the previous one", stacklevel=2)
            continue
        for damaged in names[len(names) - number :]:
            folder.remove(f"{damaged}.json", f"{damaged}.safetensors")
        return found
    if names:
        raise UserError(f"{folder.path}: no intact checkpoint among {len(names)}. Start again with --overwrite.")
    return None


def read_checkpoint(folder: HeldFolder, name: str, run: str = "") -> Checkpoint:
    """OSError or ValueError if it is damaged."""
    meta = parse_sealed(folder.read(f"{name}.json", MOST_JSON_BYTES), CheckpointRecord)
    if meta["run"] != run:
        raise ValueError("it belongs to another run")
    data = folder.read(f"{name}.safetensors", MOST_TENSOR_BYTES)
    if hashlib.sha256(data).hexdigest() != meta["sha256"]:
        raise ValueError("the checksum does not match")
    stamps = {file: Stamp(*stamp) for file, stamp in meta["stamps"].items()}
    return Checkpoint(parse_tensors(data), Position(**meta["position"]), meta["config"], run, stamps)


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
