"""Runs in processes of their own, made quickly (torch is imported once), to be stopped and killed."""

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


def _start_server() -> None:
    """The server of Python 3.11 does not get our sys.path, and passes over what it cannot import."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), *([before] if before else [])])
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def start(work: Callable[..., Any], *arguments: Any) -> BaseProcess:
    _start_server()
    process = SERVER.Process(target=_child, args=(work, *arguments))
    process.start()
    return process


def _child(work: Callable[..., Any], *arguments: Any) -> None:
    import torch

    torch.set_num_threads(1)
    work(*arguments)


def command(log: Path, argv: list[str], before: Callable[[], Any] | None = None) -> None:
    """In a child: the command line as users have it; what it says goes to `log`."""
    from proud.cli.main import main

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["proud", *argv]
    # whoever runs the tests may do so under nohup or in the background, where these are ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if before is not None:
        before()
    main()


def wait_until(true: Callable[[], bool], process: BaseProcess, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert process.is_alive(), f"ended too early with {process.exitcode}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def ends(process: BaseProcess, seconds: float = 120) -> int | None:
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"still running after {seconds} s")
    return process.exitcode
