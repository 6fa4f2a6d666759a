"""Commands that are killed at any moment: their output is the earlier one, or whole, and the same command makes it."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from children import command, ends, read, start
from killing import fingerprint

from toy import write_folders

FLAGS = [
    "--labeled",
    "a",
    "--test",
    "c",
    "--size",
    "16",
    "--model",
    "digits",
    "--weights",
    "none",
    "--threads",
    "1",
    "--device",
    "cpu",
    "--epochs",
    "1",
    "--pretrain-epochs",
    "1",
    "--batch-size",
    "8",
    "--method",
    "proud",
    "--quiet",
]


class Killed:
    """A finished run, and commands that use it."""

    def __init__(self, place: Path) -> None:
        self.place, self.count = place, 0
        self.data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
        self.run, self.other = place / "run", place / "other"
        for folder, seed in ((self.run, "1"), (self.other, "2")):
            self.must("train", "--data", str(self.data), "--out", str(folder), "--seed", seed, *FLAGS)

    def begin(self, *argv: str) -> tuple[Any, Path]:
        self.count += 1
        log = self.place / f"log-{self.count}"
        return start(command, log, list(argv)), log

    def must(self, *argv: str) -> None:
        process, log = self.begin(*argv)
        assert ends(process) == 0, read(log)

    def commands(self) -> dict[str, tuple[list[str], Callable[[Path], Any]]]:
        """Name → its flags, and what equal outputs have in common."""
        run, data = str(self.run), str(self.data)
        return {
            "predict": (["predict", run, f"{data}/b", "--device", "cpu"], Path.read_bytes),
            "evaluate": (["evaluate", run, "--domain", "c", "--device", "cpu"], measured),
            "label-next": (["label-next", run, "--k", "2", "--device", "cpu"], Path.read_bytes),
            "report": (["report", run], report_of),
        }

    def kill(self, name: str, kills: int, seed: int = 0) -> int:
        argv, content = self.commands()[name]
        chance, suffix = random.Random(seed), ".html" if name == "report" else ""
        whole = self.place / f"{name}-whole{suffix}"
        began = time.monotonic()
        self.must(*argv, "--out", str(whole))
        longest, killed = time.monotonic() - began, 0
        out = self.place / f"{name}-killed{suffix}"
        while killed < kills:
            before = content(out) if out.exists() else None
            process, _ = self.begin(*argv, "--out", str(out), "--overwrite")
            process.join(chance.uniform(0, longest))
            process.kill()
            killed += ends(process) == -signal.SIGKILL
            assert (content(out) if out.exists() else None) in (before, content(whole)), f"{name}: half an output"
        self.must(*argv, "--out", str(out), "--overwrite")
        assert content(out) == content(whole), f"{name}: another output"
        return killed

    def kill_train(self, kills: int, seed: int = 0) -> int:
        """The whole command, from reading images to the table that it shows."""
        chance, killed = random.Random(seed), 0
        argv = ["train", "--data", str(self.data), "--seed", "1", *FLAGS, "--resume"]
        began = time.monotonic()
        self.must(*argv, "--out", str(self.place / "timed"))
        longest, whole = time.monotonic() - began, fingerprint(self.place / "timed")
        folder, number = self.place / "train-0", 0
        while killed < kills:
            process, _ = self.begin(*argv, "--out", str(folder))
            process.join(chance.uniform(0, longest))
            process.kill()
            dead = ends(process) == -signal.SIGKILL
            killed += dead
            if not dead or chance.random() < 0.3:
                self.must(*argv, "--out", str(folder))
                assert fingerprint(folder) == whole, f"{folder.name}: another end"
                number += 1
                folder = self.place / f"train-{number}"
        self.must(*argv, "--out", str(folder))
        assert fingerprint(folder) == whole
        return killed

    def kill_saving(self, kills: int, seed: int = 0) -> int:
        """Model.save(overwrite=True): afterwards the folder holds one of the two models, whole."""
        from proud.model.load import load_model

        chance, target, killed = random.Random(seed), self.place / "saved", 0
        pair = [load_model(folder, "cpu") for folder in (self.run, self.other)]
        pair[0].save(target)
        while killed < kills:
            process = start(partial(save_again_and_again, self.run, self.other, target))
            process.join(chance.uniform(0.05, 0.6))
            process.kill()
            killed += ends(process) == -signal.SIGKILL
            found = load_model(target, "cpu")
            same = [
                all(value.equal(model.net.state_dict()[name]) for name, value in found.net.state_dict().items())
                for model in pair
            ]
            assert any(same), "neither the old model nor the new one"
            assert found.config == pair[same.index(True)].config, "weights of one model, description of the other"
        return killed


def save_again_and_again(first: Path, second: Path, target: Path) -> None:
    from proud.model.load import load_model

    pair = [load_model(folder, "cpu") for folder in (first, second)]
    while True:
        for model in pair:
            model.save(target, overwrite=True)


def measured(path: Path) -> Any:
    """Without the command, which names the file."""
    return json.loads(path.read_bytes())["per_class"]


def report_of(page: Path) -> list[tuple[str, bytes]]:
    """Its tables; the page itself names the time."""
    tables = sorted(page.with_name(f"{page.stem}_files").glob("*.csv"))
    return [(path.name, path.read_bytes()) for path in tables]
