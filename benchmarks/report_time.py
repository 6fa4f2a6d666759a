"""CPU time of `proud report`.

Usage: python benchmarks/report_time.py RUN RUN --label NAME --out benchmarks/results/report.json

A results file keeps one entry per label, so that two versions of the package can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from table_text import this_command

from proud.files import write_json
from proud.machine import cores, environment

REPEATS = 3


def cpu_seconds(runs: list[Path]) -> float:
    """Of the whole command, with all that it imports."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "proud", "report", *map(str, runs), "--out", f"{folder}/report.html"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--label", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    found: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    seconds = [round(cpu_seconds(arguments.runs), 2) for _ in range(REPEATS)]
    found[arguments.label] = {
        "runs": len(arguments.runs),
        "cpu_seconds": seconds,
        "least_cpu_seconds": min(seconds),
        "load": round(os.getloadavg()[0], 2),
        "cores": cores(),
        "command": this_command(),
        **environment(torch.device("cpu")),
    }
    write_json(arguments.out, found)
    print(json.dumps(found[arguments.label], indent=1))


if __name__ == "__main__":
    main()
