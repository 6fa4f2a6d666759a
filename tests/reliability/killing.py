"""The same run, killed again and again: at random moments, and at each single thing it does to a file.

A kill "with power loss" also loses what the system need not have written yet: bytes that were not synced, and a rename
whose folder was not.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from children import ends, start


class Doom:
    """Ends the process at its n-th event; counts them in `events` where that is never reached."""

    def __init__(self, at: int, seed: int, power_loss: bool, tally: Path) -> None:
        self.at, self.power_loss, self.tally = at, power_loss, tally
        self.chance = random.Random(seed)
        self.count = 0
        self.synced: dict[int, int] = {}
        self.undo_rename: Callable[[], None] | None = None

    def event(self, loss: Callable[[], None] | None = None) -> None:
        self.count += 1
        if self.count == self.at:
            if self.power_loss and loss is not None:
                loss()
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.at:
            self.tally.write_text(str(self.count))

    def install(self) -> None:
        fsync, replace, unlink, truncate = os.fsync, Path.replace, Path.unlink, os.ftruncate
        write_bytes = Path.write_bytes

        def doomed_write(path: Path, data: bytes) -> int:
            write_bytes(path, data[: len(data) // 2])
            self.event()
            done = write_bytes(path, data)
            self.event()
            return done

        def doomed_fsync(handle: int) -> None:
            about = os.fstat(handle)
            if stat.S_ISDIR(about.st_mode):
                self.event(self.undo_rename)
                fsync(handle)
                self.undo_rename = None
            else:
                low = min(self.synced.get(about.st_ino, 0), about.st_size)
                self.event(lambda: truncate(handle, self.chance.randint(low, about.st_size)))
                fsync(handle)
                self.synced[about.st_ino] = about.st_size
            self.event()

        def doomed_replace(source: Path, target: Path) -> Any:
            self.event()
            new, old = source.read_bytes(), target.read_bytes() if target.exists() else None

            def undo() -> None:
                if self.chance.random() < 0.5:
                    write_bytes(source, new)
                    unlink(target) if old is None else write_bytes(target, old)

            done = replace(source, target)
            self.undo_rename = undo
            self.event(undo)
            return done

        def doomed_unlink(path: Path, missing_ok: bool = False) -> None:
            self.event()
            unlink(path, missing_ok=missing_ok)
            self.event()

        os.fsync, Path.write_bytes = doomed_fsync, doomed_write  # type: ignore[assignment]
        Path.replace, Path.unlink = doomed_replace, doomed_unlink  # type: ignore[assignment]


def one_life(folder: Path, epochs: int, seconds: float, doom: Doom | None, started: Path) -> None:
    """In a child: begin the run or go on with it. `seconds`: between checkpoints."""
    from proud.config import Options
    from proud.training import loop
    from proud.training.run import train
    from toy import toy_run, toy_settings, toy_task

    loop.CHECKPOINT_SECONDS = seconds
    task = toy_task(per_class=3)
    settings = toy_settings("proud", epochs=epochs, pretrain_epochs=2, batch_size=8)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=True)
    if doom is not None:
        doom.install()
    started.touch()
    train(toy_run("proud", task), settings, options, data=task)


class Killer:
    """Makes the undisturbed run, and says whether others are the same."""

    def __init__(self, place: Path, epochs: int) -> None:
        self.place, self.epochs = place, epochs
        place.mkdir(parents=True, exist_ok=True)
        self.lives = self.runs = 0
        tally = place / "events"
        assert self.live(place / "undisturbed", 0.0, Doom(0, 0, False, tally)) == 0
        self.events = int(tally.read_text())
        self.whole = fingerprint(place / "undisturbed")

    def live(self, folder: Path, seconds: float, doom: Doom | None = None, until: float | None = None) -> int | None:
        """One life of a run; `until` seconds after its work began it is killed. Returns the exit code."""
        self.lives += 1
        started = self.place / f"started-{self.lives}"
        process = start(one_life, folder, self.epochs, seconds, doom, started)
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

    def at_event(self, name: str, at: int, power_loss: bool) -> None:
        folder = self.place / name
        code = self.live(folder, 0.0, Doom(at, at, power_loss, self.place / "unused"))
        assert code == -signal.SIGKILL, f"event {at}: ended with {code}"
        self.go_on(folder, 0.0)

    def go_on(self, folder: Path, seconds: float) -> None:
        assert self.live(folder, seconds) == 0
        self.must_be_the_same(folder)

    def must_be_the_same(self, folder: Path) -> None:
        found = fingerprint(folder)
        self.runs += 1
        different = [name for name in self.whole if found.get(name) != self.whole[name]]
        assert found == self.whole, f"{folder.name}: {different or sorted(found)}"


def fingerprint(folder: Path) -> dict[str, str]:
    """What equal runs have in common: all but timings and where they lie. Nothing may be left over."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == "run.json":
            continue
        content = path.read_bytes()
        if name == "timings.jsonl":
            content = repr([(row["stage"], row["epoch"]) for row in map(json.loads, content.splitlines())]).encode()
        elif name == "result.json":
            content = repr({**json.loads(content), "folder": ""}).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len({(line["stage"], line["epoch"]) for line in lines}) == len(lines)
    return {name: digest for name, digest in found.items() if not name.startswith("checkpoints/")} | {
        "checkpoints": str(sum(name.startswith("checkpoints/") for name in found) <= 4)
    }
