"""The machine a run is on: device, threads, versions, and signals that stop it."""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import proud
from proud.errors import Stopped, UserError


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name!r} is not valid: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is available here; use --device cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: there are only {torch.cuda.device_count()} CUDA devices, counted from 0.")
    return device


def computes_bf16() -> bool:
    """Whether this CPU has instructions for bf16, so that training in it is faster."""
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, test, lambda: False)() for test in tests)


def choose_threads(wanted: int, processes: int = 1) -> int:
    threads = wanted or default_threads(processes)
    torch.set_num_threads(threads)
    return threads


@contextmanager
def using_threads(wanted: int | None) -> Iterator[None]:
    """So many CPU threads, or as many as there are; afterwards as many as before."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def default_threads(processes: int = 1) -> int:
    """Half the cores: threads that compete with other work for a core slow each other down."""
    return max(1, cores() // 2 // processes)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and commit, stored beside every result."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {"proud": proud.__version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    versions |= {package: version(package) for package in ("timm", "numpy", "pillow")}
    return {"versions": versions, "device": f"{device.type}: {name}", "commit": commit()}


class Memory:
    """The memory that training takes: the GPU's, or the process's."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before = self._now()

    def _now(self) -> float:
        if self.device.type == "cuda":
            return float(torch.cuda.memory_allocated(self.device))
        try:
            return float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        except OSError:  # not on macOS
            return self.peak()

    def peak(self) -> float:
        """The most that was in use at one time, in bytes."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit

    def scaled(self, times: float) -> float:
        """The peak, if what was taken since the start were `times` as much."""
        peak = self.peak()
        return peak + max(0.0, times - 1) * max(0.0, peak - self.before)


def commit() -> str | None:
    """The commit of the source tree this package runs from; PROUD_COMMIT names it for a copy without git."""
    if given := os.environ.get("PROUD_COMMIT"):
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


GRACE_SECONDS = 3.0  # for the current step; full passes and long steps are interrupted then


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT, SIGTERM and SIGHUP stop the loop after the current step; a second SIGINT interrupts at once.

    Whatever does not reach the end of a step soon is interrupted by `Stopped`; even a kill would lose nothing.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    main = threading.get_ident()
    late = threading.Event()

    def stop(number: int, frame: object) -> None:
        if late.is_set():
            raise Stopped
        if requested.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not requested.is_set():
            requested.set()
            timer.start()

    def insist() -> None:
        late.set()
        signal.pthread_kill(main, signal.SIGTERM)

    timer = threading.Timer(GRACE_SECONDS, insist)
    timer.daemon = True
    # under nohup SIGHUP is ignored, and stays so
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield requested.is_set
    finally:
        timer.cancel()
        late.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
