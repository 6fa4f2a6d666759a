"""The same run, killed again and again at random moments."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import time
from pathlib import Path

from children import ends, start


def one_life(folder: Path, epochs: int, seconds: float, started: Path) -> None:
    """In a child: begin the run or go on with it. `seconds`: between checkpoints."""
    from proud.config import Options
    from proud.training import loop
    from proud.training.run import train
    from toy import toy_run, toy_settings, toy_task

    loop.CHECKPOINT_SECONDS = seconds
    task = toy_task(per_class=3)
    settings = toy_settings("proud", epochs=epochs, pretrain_epochs=2, batch_size=8)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=True)
    started.touch()
    train(toy_run("proud", task), settings, options, data=task)


class Killer:
    """Makes the undisturbed run, and says whether others are the same."""

    def __init__(self, place: Path, epochs: int) -> None:
        self.place, self.epochs = place, epochs
        place.mkdir(parents=True, exist_ok=True)
        self.lives = self.runs = 0
        assert self.live(place / "undisturbed", 0.0) == 0
        self.whole = fingerprint(place / "undisturbed")

    def live(self, folder: Path, seconds: float, until: float | None = None) -> int | None:
        """One life of a run; `until` seconds after its work began it is killed. Returns the exit code."""
        self.lives += 1
        started = self.place / f"started-{self.lives}"
        process = start(one_life, folder, self.epochs, seconds, started)
        if until is not None:
            while not started.exists() and process.is_alive():
                time.sleep(0.002)
            process.join(until)
            process.kill()
        return ends(process)

    def at_random_moments(self, name: str, kills: int, seconds: float, seed: int, longest: float = 0.5) -> int:
        """Kill one run so often, then let it end. Returns how many kills found it alive."""
        chance, folder, alive = random.Random(seed), self.place / name, 0
        while alive < kills:
            code = self.live(folder, seconds, until=chance.uniform(0, longest))
            alive += code == -signal.SIGKILL
            if code == 0:  # it ended before all kills were spent: another run of the same settings takes the rest
                self.must_be_the_same(folder)
                folder = self.place / f"{name}-{alive}"
        self.go_on(folder, seconds)
        return alive

    def go_on(self, folder: Path, seconds: float) -> None:
        assert self.live(folder, seconds) == 0
        self.must_be_the_same(folder)

    def must_be_the_same(self, folder: Path) -> None:
        found = fingerprint(folder)
        self.runs += 1
        different = [name for name in self.whole if found.get(name) != self.whole[name]]
        assert found == self.whole, f"{folder.name}: {different or sorted(found)}"


def fingerprint(folder: Path) -> dict[str, str]:
    """What equal runs have in common: all but timings, ids and where they lie. Nothing may be left over."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name in ("run.json", ".proud"):
            continue
        content = path.read_bytes()
        if name == "timings.jsonl":
            content = repr([(row["stage"], row["epoch"]) for row in map(json.loads, content.splitlines())]).encode()
        elif name == "manifest.json":
            listed = json.loads(content)["files"]
            content = repr({**listed, "run.json": "", "timings.jsonl": ""}).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len({(line["stage"], line["epoch"]) for line in lines}) == len(lines)
    return found
