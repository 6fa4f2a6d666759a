"""No work twice: what one run of a bench keeps for others that would do the same, and how these continue from it.

FOLDER/KEY/NNNNNN/    a checkpoint after so many epochs
FOLDER/KEY/kept.json  whose it is, and the records up to there; written last, it makes the rest valid
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from proud.errors import UserError
from proud.files import write_json
from proud.held import HeldFolder
from proud.methods.base import Method, Stage
from proud.randomness import Randomness
from proud.stored import EpochRecord, KeptRecord, SharedWith
from proud.training.checkpoint import Checkpoint, Position, load_into, read_checkpoint, save_checkpoint
from proud.training.loop import LAST_EPOCHS, Epochs, Loop
from proud.typed import read_record

FORMAT = "proud-kept-1"


@dataclass(frozen=True)
class Kept:
    """`states`: tensors after so many epochs; `records`: all lines up to there, without those of the test domain."""

    by: SharedWith
    records: list[EpochRecord]
    states: dict[int, dict[str, Tensor]]


def is_kept(folder: Path) -> bool:
    return (folder / "kept.json").is_file()


def read_kept(folder: Path) -> Kept | None:
    """None if there is none, or a damaged one, which is removed."""
    if not is_kept(folder):
        return None
    try:
        about = read_record(folder / "kept.json", KeptRecord)
        with HeldFolder(folder) as held:
            states = {number: kept_state(held, number) for number in about["epochs"]}
        if len(about["records"]) != max(states) or max(states) - min(states) + 1 != len(states):
            raise ValueError("records and epochs are inconsistent")
        return Kept(about["by"], about["records"], states)
    except (OSError, ValueError) as error:
        warnings.warn(f"{folder} is damaged ({error}): recomputing", stacklevel=2)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def write_kept(folder: Path, by: SharedWith, records: list[EpochRecord], epochs: list[int]) -> None:
    """Call when all states are written. Numbers of the test domain belong to this run only."""
    shown = [{key: value for key, value in record.items() if not key.startswith("test_")} for record in records]
    write_json(folder / "kept.json", {"format": FORMAT, "by": by, "epochs": epochs, "records": shown})


def kept_state(folder: HeldFolder, number: int) -> dict[str, Tensor]:
    return read_checkpoint(folder.sub(f"{number:06d}"), f"checkpoint-{number:06d}").state


def checkpoint_of(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}" / f"checkpoint-{number:06d}.json"


@dataclass(frozen=True)
class Reuse:
    """What a run may continue from, and what it keeps; `by` identifies the run.

    `training` and `pretraining` are keys: equal where the work is the same, empty where nothing can be shared.
    """

    folder: Path
    by: SharedWith
    training: str = ""
    pretraining: str = ""
    keep_training: bool = False
    keep_pretraining: bool = False

    def begin(self, loop: Loop) -> None:
        """At the very start of a run: skip what another one has done."""
        if self.training and (kept := read_kept(self.folder / self.training)) is not None:
            replay(loop, kept)
        elif self.pretraining and (kept := read_kept(self.folder / self.pretraining)) is not None:
            epochs = loop.stages[0].epochs
            load_into(loop.method, kept.states[epochs], self.folder / self.pretraining)
            skip(loop, kept, epochs)

    def after_epoch(self, loop: Loop) -> None:
        """Keep what others need."""
        if loop.epochs.replays:
            return
        first, done = loop.stages[0].epochs, loop.position.records
        if self.keep_pretraining and done == first:
            self._keep(self.pretraining, loop.method.state_dict(), loop.position)
            write_kept(self.folder / self.pretraining, self.by, loop.records.read(), [first])
        counted = counted_epochs(loop)
        if self.keep_training and done in counted:
            self._keep(self.training, loop.method.network().state_dict(), loop.position)
            folder = self.folder / self.training
            # a resumed run may not have kept its earlier ones
            if done == counted[-1] and all(checkpoint_of(folder, number).is_file() for number in counted):
                write_kept(folder, self.by, loop.records.read(), counted)

    def _keep(self, key: str, state: dict[str, Tensor], position: Position) -> None:
        with HeldFolder(checkpoint_of(self.folder / key, position.records).parent) as folder:
            save_checkpoint(folder, Checkpoint(state, position, {"key": key}))


def counted_epochs(loop: Loop) -> list[int]:
    """After how many epochs the network is needed: before the first and after each of those that count."""
    return list(range(max(1, loop.total - LAST_EPOCHS), loop.total + 1))


def skip(loop: Loop, kept: Kept, epochs: int) -> None:
    """Enter so many epochs of another run as done: without timings, and without numbers of its test domain."""
    records = [record | {"shared_with": kept.by} for record in kept.records[:epochs]]
    if not records:
        return
    loop.records.append(*records)
    loop.timings.append(*({key: record[key] for key in ("stage", "epoch", "shared_with")} for record in records))
    loop.position = position_after(epochs, loop.stages)


def position_after(epochs: int, stages: list[Stage]) -> Position:
    left = epochs
    for number, stage in enumerate(stages):
        if left <= stage.epochs:
            return Position(number, left, epochs)
        left -= stage.epochs
    raise UserError(f"This run has fewer than {epochs} epochs.")


def replay(loop: Loop, kept: Kept) -> None:
    """The epochs that count, with the networks of another run: evaluated here, trained there."""
    first, last = min(kept.states), max(kept.states)
    if last > len(kept.states):  # otherwise the first epoch of all counts, and starts from scratch
        loop.method.network().load_state_dict(kept.states[first])
        skip(loop, kept, first)
    loop.epochs = ReplayedEpochs(kept, loop)


class ReplayedEpochs(Epochs):
    """Loads the weights that another run had after each epoch, and returns its losses."""

    def __init__(self, kept: Kept, loop: Loop) -> None:
        super().__init__()
        self.kept, self.loop, self.replays = kept, loop, kept.by

    def __call__(
        self,
        method: Method,
        stage: Stage,
        rows: dict[str, Tensor],
        random: Randomness,
        after_step: Callable[[int], None],
    ) -> dict[str, Tensor]:
        done = self.loop.position.records
        method.network().load_state_dict(self.kept.states[done + 1])
        losses = self.kept.records[done]["losses"]
        # exact: the records hold float32 values
        return {name: torch.tensor([value], device=method.context.device) for name, value in losses.items()}
