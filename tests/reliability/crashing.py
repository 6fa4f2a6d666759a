"""A small run whose disk is taken at every moment: from each state it must go on to the same end."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from disk import Event, Journal, crashes, distinct, read_tree, restore
from killing import fingerprint

from proud.config import Options
from proud.training import loop
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

State = tuple[int, str, dict[str, bytes]]


@contextmanager
def checkpoints_every_epoch() -> Iterator[None]:
    """And no waiting for a real disk."""
    seconds, fsync, commit = loop.CHECKPOINT_SECONDS, os.fsync, os.environ.get("PROUD_COMMIT")
    loop.CHECKPOINT_SECONDS, os.environ["PROUD_COMMIT"] = 0.0, "tested"
    os.fsync = lambda handle: None
    try:
        yield
    finally:
        loop.CHECKPOINT_SECONDS, os.fsync = seconds, fsync
        os.environ.pop("PROUD_COMMIT")
        if commit is not None:
            os.environ["PROUD_COMMIT"] = commit


class SmallRun:
    def __init__(self, place: Path, method: str = "proud", epochs: int = 1) -> None:
        self.place, self.task, self.method = place, toy_task(unlabeled=1, per_class=1), method
        self.settings = toy_settings(method, epochs=epochs, pretrain_epochs=1, batch_size=4)
        self.recovered = 0
        place.mkdir(parents=True, exist_ok=True)
        root = place / "recorded"
        root.mkdir()
        journal = Journal(root)
        with checkpoints_every_epoch(), journal.recording():
            self.go_on(root / "run")
        self.events: list[Event] = journal.events
        self.whole = fingerprint(root / "run")
        *_, (_, _, last) = crashes(self.events)
        assert last == read_tree(root), "the journal has missed something"

    def go_on(self, folder: Path) -> dict[str, Any]:
        options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=True)
        return train(toy_run(self.method, self.task, weights="none"), self.settings, options, data=self.task)

    def states(self, seeds: range = range(0), events: list[Event] | None = None) -> Iterator[State]:
        return distinct(crashes(self.events if events is None else events, seeds))

    def losses(self, seeds: int) -> Iterator[State]:
        """Power losses after every event, also those that differ only in half-written files."""
        return (state for state in crashes(self.events, range(seeds)) if state[1] != "kill")

    def recover(self, states: Iterable[State]) -> int:
        """AssertionError if any of them does not lead to the same end, without a word. Returns how many there were."""
        count = 0
        with checkpoints_every_epoch():
            for place, what, tree in states:
                self._recover(tree, f"{what} after event {place}: {self.events[place][0]}")
                count += 1
        return count

    def _recover(self, tree: dict[str, bytes], moment: str) -> None:
        self.recovered += 1
        folder = self.place / f"recovered-{self.recovered}"
        restore(tree, folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # nothing is damaged, whatever was lost
                self.go_on(folder / "run")
            found = fingerprint(folder / "run")
            different = [name for name in self.whole.keys() | found if found.get(name) != self.whole.get(name)]
            assert not different, f"{moment}: {different}"
        except Exception as error:
            raise AssertionError(f"{moment}: {type(error).__name__}: {error}") from error
        finally:
            shutil.rmtree(folder)
