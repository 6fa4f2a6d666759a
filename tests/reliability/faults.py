"""Faults, one function each: bring it about, look at the message, go on, compare with the undisturbed run.

Each returns what the program said. An AssertionError means that the fault was not survived.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from children import command, ends, start, wait_until
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


# ---- disks


def _small_files(limit: int) -> None:
    checkpoints_every_epoch()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def file_size_limit(site: Site, out: Path) -> str:
    """No file may grow beyond a limit, which the records reach only after some epochs."""
    whole = (site.place / "undisturbed" / "model.safetensors").stat().st_size
    code, said = site.train(out, before=partial(_small_files, whole // 2))
    assert code == 2, said
    site.goes_on(out)
    return clear_message(said, "Cannot write", "File too large")


def _fill_disk(after: int) -> None:
    """From the n-th sync on, the disk is full."""
    import errno

    checkpoints_every_epoch()
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    os.fsync = fsync


def full_disk_late(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_fill_disk, 14))
    assert code == 2, said
    site.goes_on(out)
    return clear_message(said, "Cannot write", "No space left")


def unwritable_output(site: Site, out: Path) -> str:
    """A place where even root may not write."""
    code, said = site.train(Path("/proc/proud-run"))
    assert code == 2, said
    return clear_message(said, "Cannot write to")


def two_processes(site: Site, out: Path) -> str:
    process, _ = site.begin(out, before=partial(_slow, "proud.training.loop", "plain_epoch", 1.0))
    wait_until((out / "run.json").exists, process)
    code, said = site.train(out, "--resume")
    assert code == 2, said
    process.kill()
    process.join()
    site.goes_on(out)
    return clear_message(said, "Another process is writing")


# ---- data


def _vanish(data: Path) -> None:
    """Between finding the images and reading them."""
    from proud.data import assemble

    real = assemble.hash_all

    def hash_all(*arguments: Any, **more: Any) -> list[str]:
        if data.exists():
            data.rename(data.with_name("elsewhere"))
        return real(*arguments, **more)

    assemble.hash_all = hash_all


def data_gone_before_decoding(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_vanish, site.data))
    site.data.with_name("elsewhere").rename(site.data)
    assert code == 2, said
    assert site.train(out, "--quiet")[0] == 0
    assert fingerprint(out) == site.whole
    clear_message(said, "images cannot be used")
    return clear_message(said, "No such file or directory")


def data_gone_while_training(site: Site, out: Path) -> str:
    process, _ = site.begin(out, "--quiet", before=checkpoints_every_epoch)
    wait_until((out / "records.jsonl").exists, process)
    site.data.rename(site.data.with_name("elsewhere"))
    process.terminate()
    ends(process)
    code, said = site.train(out, "--resume")
    site.data.with_name("elsewhere").rename(site.data)
    assert code == 2, said
    site.goes_on(out)
    return clear_message(said, "There is no folder")


def image_fails_at_decoding(site: Site, out: Path) -> str:
    """Its header is whole."""
    path = min(site.data.rglob("*.png"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 200])
    code, said = site.train(out)
    path.write_bytes(content)
    assert code == 2, said
    assert site.train(out, "--quiet")[0] == 0
    assert fingerprint(out) == site.whole
    return clear_message(said, path.name, "truncated")


# ---- memory and numbers


def _small_gpu(most: int) -> None:
    import torch

    from proud.methods.base import Method

    real = Method.step

    def step(self: Any, stage: Any, rows: Any, draws: Any) -> Any:
        if stage.name == "main" and self.config.batch_size > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return real(self, stage, rows, draws)

    Method.step = step  # type: ignore[method-assign]


def out_of_memory(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_small_gpu, 3))
    assert code == 2, said
    site.goes_on(out)
    return clear_message(said, "too small for --batch-size 8; 2 would fit")


def not_a_number(site: Site, out: Path) -> str:
    code, said = site.train(out, "--lr", "1e30", before=checkpoints_every_epoch)
    assert code == 2, said
    return clear_message(said, "--lr", "became")


# ---- signals


def _slow(module: str, name: str, seconds: float) -> None:
    """A function that takes so long, in many small pieces of work."""
    from importlib import import_module

    place: Any = import_module(module)
    *inner, last = name.split(".")
    for part in inner:
        place = getattr(place, part)
    real = getattr(place, last)

    def slow(*arguments: Any, **more: Any) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1000))
        return real(*arguments, **more)

    setattr(place, last, slow)
    checkpoints_every_epoch()


MOMENTS: dict[str, tuple[str, str, float, str]] = {
    # which function is slow, and for how many seconds; what is there when the run has come so far
    "reading images": ("proud.data.assemble", "hash_all", 20.0, ""),
    "decoding images": ("proud.data.store", "_decode_pixels", 1.0, ""),
    "the first epoch": ("proud.methods.base", "Method.step", 20.0, "run.json"),
    "pseudo-labelling": ("proud.methods.proud", "ProUD.pseudo_label", 20.0, "records.jsonl"),
    "evaluation": ("proud.evaluation", "Evaluator.scores", 20.0, "run.json"),
    "writing a checkpoint": ("proud.training.checkpoint", "write_tensors", 20.0, "records.jsonl"),
}


def stopped(number: signal.Signals, moment: str, site: Site, out: Path) -> str:
    """Within five seconds, whatever it is doing; the last boundary is kept."""
    module, name, seconds, there = MOMENTS[moment]
    process, log = site.begin(out, "--quiet", before=partial(_slow, module, name, seconds))
    wait_until((out / there).exists, process)
    time.sleep(0.3)
    begun = time.monotonic()
    os.kill(process.pid, number)
    code = ends(process)
    took = time.monotonic() - begun
    said = read(log)
    assert took < 5, f"{took:.1f} s"
    assert code in (130, 128 + number), f"{code}: {said}"
    if (out / "run.json").exists():
        site.goes_on(out)
    else:
        assert site.train(out, "--quiet")[0] == 0
        assert fingerprint(out) == site.whole
    return f"{clear_message(said, 'topped')} ({took:.1f} s)"


def hang_up_under_nohup(site: Site, out: Path) -> str:
    process, log = site.begin(out, "--quiet", before=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN))
    wait_until((out / "run.json").exists, process)
    os.kill(process.pid, signal.SIGHUP)
    assert ends(process) == 0, read(log)
    assert fingerprint(out) == site.whole
    return "the run goes on to its end"


def nobody_reads(site: Site, out: Path) -> str:
    """`proud train … | head -c 1`: the reader is gone when there is something to say."""
    argv = [sys.executable, "-m", "proud", "train", "--data", str(site.data), "--out", str(out), *FLAGS]
    reader, writer = os.pipe()
    process = subprocess.Popen(argv, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said, said
    site.goes_on(out)
    return f"exit code {process.returncode}, the run is whole"


def terminal_gone(site: Site, out: Path) -> str:
    """Its window is closed: every write to the terminal fails from then on."""
    import pty

    argv = [sys.executable, "-m", "proud", "train", "--data", str(site.data), "--out", str(out), *FLAGS]
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    while not (out / "run.json").exists() and process.poll() is None:
        time.sleep(0.01)
    os.close(master)
    os.kill(process.pid, signal.SIGHUP)
    code = process.wait(timeout=60)
    site.goes_on(out)
    return f"exit code {code}, the run goes on with --resume"


# ---- clocks


def _jumping_clocks() -> None:
    from proud.training import loop

    class Clock:
        """Every look at it is an hour before the last."""

        now = 1e9

        def look(self) -> float:
            self.now -= 3600
            return self.now

        monotonic = time = perf_counter = look

        def sleep(self, seconds: float) -> None: ...

    loop.time = Clock()  # type: ignore[assignment]


def clocks_jump_back(site: Site, out: Path) -> str:
    code, said = site.train(out, "--quiet", before=_jumping_clocks)
    assert code == 0, said
    assert fingerprint(out) == site.whole
    return "the run ends as it should, with all its checkpoints"


Fault = Callable[[Site, Path], str]
FAULTS: dict[str, Fault] = {
    "a file grows over the allowed size (RLIMIT_FSIZE)": file_size_limit,
    "the disk is full in the middle of a run": full_disk_late,
    "the output cannot be written to": unwritable_output,
    "a second process on the same run": two_processes,
    "the data folder disappears before decoding": data_gone_before_decoding,
    "the data folder disappears while training": data_gone_while_training,
    "an image that fails only at decoding": image_fails_at_decoding,
    "out of GPU memory (simulated)": out_of_memory,
    "a loss that is not a number": not_a_number,
    "SIGHUP under nohup": hang_up_under_nohup,
    "stdout is closed": nobody_reads,
    "the terminal is gone": terminal_gone,
    "clocks jump back": clocks_jump_back,
    **{f"SIGTERM during {moment}": partial(stopped, signal.SIGTERM, moment) for moment in MOMENTS},
    "SIGHUP during the first epoch": partial(stopped, signal.SIGHUP, "the first epoch"),
    "SIGINT during pseudo-labelling": partial(stopped, signal.SIGINT, "pseudo-labelling"),
}
SOAK_ONLY = {  # like others, and some seconds each
    "the terminal is gone",
    "SIGTERM during evaluation",
    "SIGTERM during writing a checkpoint",
    "SIGHUP during the first epoch",
    "SIGINT during pseudo-labelling",
}
