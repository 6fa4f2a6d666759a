"""A small run as users start it, its outcome when nothing happens to it, and ways to stop it in the middle."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from children import LIMIT, command, ends, read, start, wait_until
from killing import fingerprint

from toy import write_folders

SETTINGS = """--labeled central --test none --size 16 --model digits --threads 1 --device cpu --epochs 3
--pretrain-epochs 1 --batch-size 8 --lr 0.01 --mixup 0.4 --tau-uncertainty 0.1 --no-flip"""
FLAGS = SETTINGS.split()


class Site:
    """Data, and the undisturbed run that all others are compared with.

    `grace`: seconds that a signal leaves for the current step, if other than usual.
    """

    def __init__(self, place: Path, grace: float | None = None) -> None:
        self.place, self.grace = place, grace
        self.data = write_folders(place / "data", {"central": 0, "north": 1}, per_class=3)
        self.count = 0
        self.undisturbed, self.half_done = place / "undisturbed", place / "half-done"
        assert self.train(self.undisturbed)[0] == 0
        self.whole = fingerprint(self.undisturbed)
        self._kill_after_two_epochs()

    def _kill_after_two_epochs(self) -> None:
        process, _ = self.begin(self.half_done, "--quiet", before=partial(hang, PLAIN_EPOCH, self.place / "hangs", 3))
        wait_until((self.place / "hangs").exists, process)
        process.kill()
        ends(process)
        (self.half_done / "checkpoints" / ".checkpoint-000009.safetensors.0a1b2c3d.proud-part").write_bytes(
            b"left by a kill"
        )

    def begin(self, out: Path, *more: str, before: Callable[[], Any] | None = None) -> tuple[Any, Path]:
        self.count += 1
        log = self.place / f"log-{self.count}"
        return start(command, log, self.argv(out, *more), partial(_prepare, self.grace, before)), log

    def argv(self, out: Path, *more: str) -> list[str]:
        return ["train", "--data", str(self.data), "--out", str(out), *FLAGS, *more]

    def train(self, out: Path, *more: str, before: Callable[[], Any] | None = None) -> tuple[int | None, str]:
        process, log = self.begin(out, *more, before=before)
        code = ends(process)
        return code, read(log)

    def copy_half_done(self, out: Path) -> list[Path]:
        """A run that was killed after two epochs. Returns the tensors of its checkpoints, newest first."""
        shutil.copytree(self.half_done, out)
        found = sorted((out / "checkpoints").glob("*.json"), reverse=True)
        return [path.with_suffix(".safetensors") for path in found]

    def resumes(self, out: Path) -> None:
        """The run can be resumed, and ends as if nothing had happened."""
        code, said = self.train(out, "--resume", "--quiet")
        assert code == 0, said
        self.must_be_the_same(out)

    def must_be_the_same(self, out: Path) -> None:
        found = fingerprint(out)
        assert found == self.whole, [name for name in self.whole if found.get(name) != self.whole[name]]


def clear_message(said: str, *words: str) -> str:
    assert "Traceback" not in said, said
    line = next((line for line in said.splitlines() if all(word in line for word in words)), None)
    assert line is not None, f"{words} not in: {said}"
    return line.strip()


# ---- in the child, before it starts


def _prepare(grace: float | None, before: Callable[[], Any] | None) -> None:
    from proud import machine

    if grace is not None:
        machine.GRACE_SECONDS = grace
    if before is not None:
        before()


def checkpoints_every_epoch() -> None:
    from proud.training import loop

    loop.CHECKPOINT_SECONDS = 0.0


PLAIN_EPOCH = "proud.training.loop", "plain_epoch"


def hang(function: tuple[str, str], there: Path, call: int = 1, seconds: float = LIMIT) -> None:
    """Let the n-th call of a function, and all later ones, create the file `there` and take so long, in many small
    pieces of work."""
    module, name = function
    place: Any = import_module(module)
    *inner, last = name.split(".")
    for part in inner:
        place = getattr(place, part)
    real, calls = getattr(place, last), []

    def hanging(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) >= call:
            there.touch()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                sum(range(1000))
        return real(*arguments, **more)

    setattr(place, last, hanging)
    checkpoints_every_epoch()


Fault = Callable[[Site, Path], str]
"""Causes a fault, checks the message, resumes and compares. Returns what the program said."""
