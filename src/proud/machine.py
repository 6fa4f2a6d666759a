"""The machine a run is on: device, threads, versions, and signals that ask it to stop."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import proud
from proud.errors import UserError
from proud.methods import method_class


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name!r} is not a device: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is available here; use --device cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: there are only {torch.cuda.device_count()} CUDA devices, counted from 0.")
    return device


def choose_threads(wanted: int, processes: int = 1) -> int:
    threads = wanted or usual_threads(processes)
    torch.set_num_threads(threads)
    return threads


def usual_threads(processes: int = 1) -> int:
    """Half the cores: threads that share a core with other work wait for each other at every step."""
    return max(1, cores() // 2 // processes)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def making_many_objects() -> Iterator[None]:
    """Python looks for garbage among all objects over and over while their number grows: not now."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and commit, stored beside every result."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {"proud": proud.__version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    versions |= {package: version(package) for package in ("timm", "numpy", "pillow")}
    return {"versions": versions, "device": f"{device.type}: {name}", "commit": commit()}


def commit() -> str | None:
    """The commit of the source tree this package runs from; a copy without git is told it by PROUD_COMMIT."""
    if told := os.environ.get("PROUD_COMMIT"):
        return told
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@cache
def code_of(method: str) -> list[str]:
    """A method's class and what its files hold: a copy under the same name, or an edited one, is another method."""
    kind = method_class(method)
    files = [getattr(sys.modules[each.__module__], "__file__", None) for each in kind.__mro__]
    contents = [hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in dict.fromkeys(files) if file]
    return [kind.__module__, kind.__qualname__, *contents]


def code_version(method: str) -> str:
    return hashlib.sha256(" ".join(code_of(method)).encode()).hexdigest()[:12]


class Stopped(Exception):
    """The run was asked to stop; the last checkpoint is its state."""


GRACE_SECONDS = 3.0  # for the step that is under way; full passes and long steps are broken off then


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT, SIGTERM and SIGHUP ask the loop to stop after the step; a second SIGINT interrupts at once.

    What does not come to a step's end soon is broken off by `Stopped`: a kill would lose nothing either.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    main = threading.get_ident()
    late = threading.Event()

    def stop(number: int, frame: object) -> None:
        if late.is_set():
            raise Stopped
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked.is_set():
            asked.set()
            timer.start()

    def insist() -> None:
        late.set()
        signal.pthread_kill(main, signal.SIGTERM)

    timer = threading.Timer(GRACE_SECONDS, insist)
    timer.daemon = True
    # under nohup a hang-up is ignored, and stays so
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield asked.is_set
    finally:
        timer.cancel()
        late.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
