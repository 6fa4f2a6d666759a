"""`proud review` and `proud serve` in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server(command: str, *arguments: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, once it is printed, and the process, which is killed at the end."""
    words = [sys.executable, "-m", "proud", command, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if line.startswith("http://"):
                    break
            else:
                raise AssertionError("".join(printed))
            yield printed[-1].strip(), process
        finally:
            process.kill()


def peak_megabytes(process: subprocess.Popen[str]) -> float:
    """The most memory that a process has had."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
