"""Commands that are killed at any moment: their output is the earlier one, or whole, and the same command makes it."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from children import command, ends, read, start
from killing import fingerprint

from toy import write_folders

SETTINGS = """--labeled a --test c --size 16 --model digits --weights none --threads 1 --device cpu --epochs 1
--pretrain-epochs 1 --batch-size 8 --least-steps 1 --method proud --quiet"""
FLAGS = SETTINGS.split()
KILLS = {  # in `make soak`
    "predict": 40,
    "evaluate": 40,
    "label-next": 40,
    "compare": 30,
    "export": 8,
    "report": 4,
}


class Killed:
    """A finished run, and commands that use it."""

    def __init__(self, place: Path) -> None:
        self.place, self.count = place, 0
        self.data = write_folders(place / "data", {"a": 0, "b": 1, "c": 2}, per_class=3)
        self.run, self.other = place / "run", place / "other"
        for folder, seed in ((self.run, "1"), (self.other, "2")):
            self.must("train", "--data", str(self.data), "--out", str(folder), "--seed", seed, *FLAGS)

    def begin(self, *argv: str, before: Callable[[], Any] | None = None) -> tuple[Any, Path]:
        self.count += 1
        log = self.place / f"log-{self.count}"
        return start(command, log, list(argv), before), log

    def must(self, *argv: str, before: Callable[[], Any] | None = None) -> float:
        """Its seconds."""
        began = time.monotonic()
        process, log = self.begin(*argv, before=before)
        assert ends(process) == 0, read(log)
        return time.monotonic() - began

    def commands(self) -> dict[str, tuple[list[str], Callable[[Path], Any]]]:
        """Name → its flags, and what equal outputs have in common."""
        run, data = str(self.run), str(self.data)
        return {
            "predict": (["predict", run, f"{data}/b", "--device", "cpu"], Path.read_bytes),
            "evaluate": (["evaluate", run, "--domain", "c", "--device", "cpu"], measured),
            "label-next": (["label-next", run, "--k", "2", "--device", "cpu"], Path.read_bytes),
            "compare": (["compare", run, str(self.other), f"{data}/b", "--device", "cpu"], Path.read_bytes),
            "export": (["export", run, "--format", "torch"], Path.read_bytes),
            "report": (["report", run], report_of),
        }

    def kill(self, name: str, kills: int, seed: int = 0) -> int:
        argv, content = self.commands()[name]
        chance, suffix = random.Random(seed), ".html" if name == "report" else ""
        whole = self.place / f"{name}-whole{suffix}"
        longest, killed = self.must(*argv, "--out", str(whole)), 0
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

    def kill_train(self, kills: int) -> int:
        """The whole command, from reading images to the table that it shows."""
        argv = ["train", "--data", str(self.data), "--seed", "1", *FLAGS, "--resume"]
        return self._kill_and_go_on("train", argv, fingerprint, kills)

    def kill_demo(self, kills: int) -> int:
        return self._kill_and_go_on("demo", ["demo"], demo_of, kills, before=small_demo)

    def _kill_and_go_on(
        self,
        name: str,
        argv: list[str],
        content: Callable[[Path], Any],
        kills: int,
        before: Callable[[], Any] | None = None,
    ) -> int:
        """The same command goes on where a killed one has ended."""
        chance, killed, number = random.Random(0), 0, 0
        longest = self.must(*argv, "--out", str(self.place / f"{name}-whole"), before=before)
        whole = content(self.place / f"{name}-whole")
        folder = self.place / f"{name}-0"
        while killed < kills:
            process, _ = self.begin(*argv, "--out", str(folder), before=before)
            process.join(chance.uniform(0, longest))
            process.kill()
            dead = ends(process) == -signal.SIGKILL
            killed += dead
            if not dead or chance.random() < 0.3 or killed == kills:
                self.must(*argv, "--out", str(folder), before=before)
                assert content(folder) == whole, f"{folder.name}: another end"
                number += 1
                folder = self.place / f"{name}-{number}"
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


def report_of(page: Path) -> list[tuple[str, str]]:
    """Its tables, but for times and places; the page itself names the time."""
    tables, vary = sorted(page.with_name(f"{page.stem}_files").glob("*.csv")), re.escape(str(page.parent))
    return [(path.name, re.sub(rf"{vary}|\d+\.\d min", "", path.read_text())) for path in tables]


def demo_of(folder: Path) -> list[Any]:
    return [fingerprint(folder / method) for method in ("erm", "proud-plus")] + [report_of(folder / "report.html")]


def small_demo() -> None:
    """In the child: few images, hardly any training, empty figures."""
    from proud.data import embedded
    from proud.methods import presets
    from proud.model import adapt
    from proud.report import page
    from proud.report.figures import maps

    presets.PRESETS["embedded"] |= {"epochs": 2, "pretrain_epochs": 1, "batch_size": 16, "views": 1}
    embedded.PER_CLASS = adapt.FEWEST_PER_CLASS = 2
    maps.embed = lambda features: features[:, :2]
    page.panel_png = lambda panel, theme: b""
    page.chart_files = lambda chart: {"png": b"", "pdf": b""}
