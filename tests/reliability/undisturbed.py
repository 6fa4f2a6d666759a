"""A small run as users start it, and what it looks like when nothing happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from children import command, ends, start
from killing import fingerprint

from toy import write_folders

SETTINGS = """--labeled central --test none --size 16 --model digits --threads 1 --device cpu --epochs 3
--pretrain-epochs 1 --batch-size 8 --lr 0.01 --mixup 0.4 --tau-uncertainty 0.1 --no-flip"""
FLAGS = SETTINGS.split()


class Site:
    """Data and the undisturbed run that all faults are measured against."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.data = write_folders(place / "data", {"central": 0, "north": 1}, per_class=3)
        self.count = 0
        assert self.train(place / "undisturbed")[0] == 0
        self.whole = fingerprint(place / "undisturbed")

    def begin(self, out: Path, *more: str, before: Callable[[], Any] | None = None) -> tuple[Any, Path]:
        self.count += 1
        log = self.place / f"log-{self.count}"
        argv = ["train", "--data", str(self.data), "--out", str(out), *FLAGS, *more]
        return start(command, log, argv, before), log

    def train(self, out: Path, *more: str, before: Callable[[], Any] | None = None) -> tuple[int | None, str]:
        process, log = self.begin(out, *more, before=before)
        code = ends(process)
        return code, read(log)

    def goes_on(self, out: Path) -> None:
        """It is resumable, and ends as if nothing had happened."""
        code, said = self.train(out, "--resume", "--quiet")
        assert code == 0, said
        found = fingerprint(out)
        assert found == self.whole, [name for name in self.whole if found.get(name) != self.whole[name]]


def read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def clear_message(said: str, *words: str) -> str:
    assert "Traceback" not in said, said
    line = next((line for line in said.splitlines() if all(word in line for word in words)), None)
    assert line is not None, f"{words} not in: {said}"
    return line.strip()


def checkpoints_every_epoch() -> None:
    from proud.training import loop

    loop.CHECKPOINT_SECONDS = 0.0


def slow(module: str, name: str, seconds: float) -> None:
    """A function that takes so long, in many small pieces of work."""
    place: Any = import_module(module)
    *inner, last = name.split(".")
    for part in inner:
        place = getattr(place, part)
    real = getattr(place, last)

    def slower(*arguments: Any, **more: Any) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1000))
        return real(*arguments, **more)

    setattr(place, last, slower)
    checkpoints_every_epoch()


Fault = Callable[[Site, Path], str]
"""Brings a fault about, looks at the message, goes on and compares. Returns what the program said."""
