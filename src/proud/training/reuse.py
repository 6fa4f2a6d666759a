"""No work twice: what one run of a bench keeps for others that would do the very same, and how these go on from it.

FOLDER/KEY/NNNNNN/    a checkpoint after so many epochs
FOLDER/KEY/kept.json  whose it is, and the records up to there; written last, it makes the rest valid
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from proud.errors import UserError
from proud.training.checkpoint import Position, load_into, read_checkpoint, save_checkpoint
from proud.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from proud.methods.base import Method, Stage
    from proud.randomness import Randomness
    from proud.training.loop import Loop

FORMAT = "proud-kept-1"


@dataclass(frozen=True)
class Kept:
    """`states`: tensors after so many epochs; `records`: all lines up to there, without those of the test domain."""

    by: dict[str, str]
    records: list[dict[str, Any]]
    states: dict[int, dict[str, Tensor]]


def is_kept(folder: Path) -> bool:
    return (folder / "kept.json").is_file()


def read_kept(folder: Path) -> Kept | None:
    """None where there is none, or a damaged one, which is removed."""
    if not is_kept(folder):
        return None
    try:
        about = read_json(folder / "kept.json")
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
        states = {int(number): read_checkpoint(checkpoint_of(folder, number))[0] for number in about["epochs"]}
        if len(about["records"]) != max(states) or max(states) - min(states) + 1 != len(states):
            raise ValueError("its records and epochs do not fit")
        return Kept({key: str(about["by"][key]) for key in ("method", "test")}, list(about["records"]), states)
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        warnings.warn(f"{folder} is damaged ({error}): what it held is trained again", stacklevel=2)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def write_kept(folder: Path, by: dict[str, str], records: list[dict[str, Any]], epochs: list[int]) -> None:
    """Call when all states are there. Numbers of the test domain are this run's alone."""
    shown = [{key: value for key, value in record.items() if key != "test_accuracy"} for record in records]
    write_json(folder / "kept.json", {"format": FORMAT, "by": by, "epochs": epochs, "records": shown})


def checkpoint_of(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}" / f"checkpoint-{number:06d}.json"


@dataclass(frozen=True)
class Sharing:
    """What a run may go on from, and what it keeps; `by` says which run it is.

    `training` and `pretraining` are keys: they are equal where the work is. An empty one shares nothing.
    """

    folder: Path
    by: dict[str, str]
    training: str = ""
    pretraining: str = ""
    keep_training: bool = False
    keep_pretraining: bool = False

    # ---- going on

    def begin(self, loop: Loop) -> None:
        """At the very start of a run: skip what another one has done."""
        if self.training and (kept := read_kept(self.folder / self.training)) is not None:
            show_again(loop, kept)
        elif self.pretraining and (kept := read_kept(self.folder / self.pretraining)) is not None:
            epochs = loop.stages[0].epochs
            load_into(loop.method, kept.states[epochs], self.folder / self.pretraining)
            skip(loop, kept, epochs)

    # ---- keeping

    def after_epoch(self, loop: Loop) -> None:
        if loop.shown_again:
            return
        first, done = loop.stages[0].epochs, loop.position.records
        if self.keep_pretraining and done == first:
            self._keep(self.pretraining, loop.method.state_dict(), loop.position)
            write_kept(self.folder / self.pretraining, self.by, loop.records.read(), [first])
        counted = counted_epochs(loop)
        if self.keep_training and done in counted:
            self._keep(self.training, loop.method.network().state_dict(), loop.position)
            folder = self.folder / self.training
            # a run that was taken up again may not have kept its earlier ones
            if done == counted[-1] and all(checkpoint_of(folder, number).is_file() for number in counted):
                write_kept(folder, self.by, loop.records.read(), counted)

    def _keep(self, key: str, state: dict[str, Tensor], position: Position) -> None:
        folder = checkpoint_of(self.folder / key, position.records).parent
        save_checkpoint(folder, state, position, {"key": key})


def counted_epochs(loop: Loop) -> list[int]:
    """After how many epochs the network is wanted: before the first and after each of those that count."""
    from proud.training.loop import LAST_EPOCHS

    total = sum(stage.epochs for stage in loop.stages)
    return list(range(max(1, total - LAST_EPOCHS), total + 1))


def skip(loop: Loop, kept: Kept, epochs: int) -> None:
    """Enter so many epochs of another run as done: no seconds of ours, no numbers of its test domain."""
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
    raise UserError(f"There are no {epochs} epochs in this run.")


def show_again(loop: Loop, kept: Kept) -> None:
    """The epochs that count, with the networks of another run: evaluated here, trained there."""
    first, last = min(kept.states), max(kept.states)
    if last > len(kept.states):  # otherwise the first epoch of all counts, and starts from scratch
        loop.method.network().load_state_dict(kept.states[first])
        skip(loop, kept, first)
    loop.shown_again = kept.by

    def run_epoch(
        method: Method, stage: Stage, rows: dict[str, Tensor], random: Randomness, after_step: Callable[[int], None]
    ) -> dict[str, Tensor]:
        method.network().load_state_dict(kept.states[loop.position.records + 1])
        losses = kept.records[loop.position.records]["losses"]
        # exact: the records hold float32 values
        return {name: torch.tensor([value], device=method.context.device) for name, value in losses.items()}

    loop.run_epoch = run_epoch
