"""Programs in processes of their own: what they import, and the CPU time that they need."""

from __future__ import annotations

import subprocess
import sys
from functools import cache


def fresh_process(program: str) -> str:
    """The output of a Python program that must succeed."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def cpu_seconds(program: str, attempt: int) -> float:
    """CPU time rather than wall-clock time: other processes do not count."""
    return float(fresh_process(f"{program}\nimport time\nprint()\nprint(time.process_time())").splitlines()[-1])


def assert_cpu_time(program: str, times: float, reference: str = "import torch") -> None:
    """The program needs at most so many times the CPU time of the reference, in the best of three attempts."""
    needed, allowed = [], []
    for attempt in range(3):
        needed.append(cpu_seconds(program, attempt))
        allowed.append(times * cpu_seconds(reference, attempt))
        if min(needed) <= min(allowed):
            print(f"{min(needed):.2f} s of CPU time, {times:g} × {reference!r}: {min(allowed):.2f} s")
            return
    raise AssertionError(f"{min(needed):.2f} s of CPU time, more than {min(allowed):.2f} s: {times:g} × {reference!r}")
