"""Commands in a child that is forked from this warm process: their codes, answers and all that they print."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HANGS = 30  # seconds of computing, however busy the machine is
WAITS = 600  # seconds in all: it waits for something that does not come
CHILD_FAILED = 99


class Said(NamedTuple):
    code: int
    answer: Any
    text: str
    seconds: float = 0.0
    kilobytes: int = 0


Ask = Callable[[], tuple[int, Any]]


def in_child(place: Path, asked: dict[str, Ask]) -> dict[str, Said]:
    """Forked from this warm process: each command's code (negative: a signal) and answer, and all that it printed. A
    command that ends the child is the last."""
    log, answers = place / "log", place / "answers"
    answers.write_bytes(b"")
    child = os.fork()
    if not child:
        _child(log, answers, asked)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    found = {}
    for line in answers.read_text().splitlines():
        name, *said = json.loads(line)
        found[name] = Said(*said, kilobytes=used.ru_maxrss)
    if code:
        name = next(name for name in asked if name not in found)
        text = log.read_text(encoding="utf-8", errors="replace")
        found[name] = Said(code, None, text, float(WAITS if code == -signal.SIGALRM else 0), used.ru_maxrss)
    return found


def _child(log: Path, answers: Path, asked: dict[str, Ask]) -> None:
    code = CHILD_FAILED
    try:
        os.environ["PROUD_COMMIT"] = "tested"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with answers.open("a") as file:
            for name, ask in asked.items():
                output_to(log)
                signal.alarm(WAITS)
                began = time.process_time()
                exit_code, answer = ask()
                sys.stdout.flush()
                sys.stderr.flush()
                text = log.read_text(encoding="utf-8", errors="replace")
                file.write(json.dumps([name, exit_code, answer, text, time.process_time() - began]) + "\n")
                file.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def output_to(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))
