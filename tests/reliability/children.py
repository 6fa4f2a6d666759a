"""Processes to be stopped and killed, forked from one that has imported torch already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["warm"])
HERE = Path(__file__).resolve().parent
LIMIT = 240.0  # seconds; only reached when something is broken, however busy the machine is


def start_server() -> None:
    """The server of Python 3.11 does not get our sys.path, and skips what it cannot import."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), *([before] if before else [])])
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def start(work: Callable[..., Any], *arguments: Any) -> BaseProcess:
    start_server()
    process = SERVER.Process(target=_child, args=(work, *arguments))
    process.start()
    return process


def _child(work: Callable[..., Any], *arguments: Any) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ["PROUD_COMMIT"] = "tested"  # git is slow on a busy machine, and the source may change meanwhile
    # whoever runs the tests may do so under nohup or in the background, where these are ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work(*arguments)


def command(log: Path, argv: list[str], before: Callable[[], Any] | None = None) -> None:
    """In a child: the command line; its output goes to `log`. `before` is called first."""
    from proud.cli.main import main

    output_to(log)
    sys.argv = ["proud", *argv]
    if before is not None:
        before()
    main()


def output_to(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


def read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def wait_until(condition: Callable[[], Any], process: BaseProcess | None = None, seconds: float = LIMIT) -> Any:
    """Returns what the condition returned; the process must be alive until then."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        # looked at once more: it may have come true just before the end
        assert process is None or process.is_alive() or condition(), f"ended too early with {process.exitcode}"
        assert time.monotonic() < end, f"nothing happened for {seconds} s"
        time.sleep(0.005)
    return found


def ends(process: BaseProcess, seconds: float = LIMIT) -> int | None:
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"still running after {seconds} s")
    return process.exitcode
