"""Checkpoints at epoch boundaries: safetensors with JSON beside, written atomically, checksummed, the last two kept."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proud.errors import UserError
from proud.training.files import read_json, replacing, write_json, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
FORMAT = "proud-checkpoint-1"


@dataclass(frozen=True)
class Position:
    """Where a run stands: `epoch` epochs of stage number `stage` are done, `records` lines are written."""

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
    for old in sorted(folder.glob("checkpoint-*.json"))[:-KEPT]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)
    described = {path.stem for path in folder.glob("checkpoint-*.json")}
    for path in folder.glob("checkpoint-*.safetensors"):  # torn writes of a killed process
        if path.stem not in described:
            path.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], Position, dict[str, Any]] | None:
    """The newest intact checkpoint, or None when there is none at all. A damaged one is passed over with a warning."""
    descriptions = sorted(folder.glob("checkpoint-*.json"), reverse=True)
    for path in descriptions:
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"{path.name} is damaged ({error}); trying the one before", stacklevel=2)
    if descriptions:
        raise UserError(f"{folder}: no intact checkpoint among {len(descriptions)}. Start again with --overwrite.")
    return None


def _read(path: Path) -> tuple[dict[str, Tensor], Position, dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    meta = read_json(path)
    if meta["format"] != FORMAT:
        raise ValueError(f"its format is {meta['format']!r}, not {FORMAT!r}")
    data = path.with_suffix(".safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != meta["sha256"]:
        raise ValueError("its checksum does not match")
    try:
        state = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    position = Position(**{key: int(value) for key, value in meta["position"].items()})
    return state, position, meta["config"]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
