"""How good are the estimates at the start of training? Estimated against actual time, memory and disk space.

Usage: python benchmarks/estimates.py --pacs DIR --out benchmarks/results/estimates.json

Three short runs on the CPU, each in a process of its own. The estimate is the one that `proud train` prints after its
first steps; the actual time is that from the first epoch's start to the finished run. Both are in seconds of the
process's CPU time, with one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from table_text import this_command

from proud.config import Options, RunConfig
from proud.files import write_json
from proud.machine import Memory, environment
from proud.methods import method_config, workload
from proud.methods.presets import preset
from proud.training import forecast
from proud.training.loop import Progress
from proud.training.run import train

IMAGES = 63  # per site
CASES: dict[str, dict[str, Any]] = {
    "digits": {"method": "proud-plus", "epochs": 2, "pretrain_epochs": 3},
    "PACS, 64 px": {"method": "proud-plus", "size": 64, "batch_size": 32, "epochs": 3, "pretrain_epochs": 3},
    "PACS, 128 px": {"method": "erm", "size": 128, "batch_size": 32, "epochs": 2, "pretrain_epochs": 4},
}


def small_pacs(root: Path, home: Path) -> Path:
    """The first images of every class and site, as links."""
    for site in sorted(path for path in (root / "images").iterdir() if path.is_dir()):
        classes = sorted(path for path in site.iterdir() if path.is_dir())
        for folder in classes:
            for image in sorted(folder.iterdir())[: IMAGES // len(classes)]:
                place = home / site.name / folder.name / image.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(image)
    return home


class Watch:
    """Remembers the estimate, when training began, and the most disk space that the run took."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.begin, self.told, self.disk = folder, 0.0, 0.0, 0
        self.estimate: Any = None

    def __call__(self, now: Progress) -> None:
        self.begin = self.begin or time.process_time()
        if now.estimate is not None:
            self.estimate, self.told = now.estimate, time.process_time() - self.begin
        if now.record is not None:
            self.disk = max(self.disk, sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()))


class CpuClock:
    """In place of the clock by which the estimate is made."""

    perf_counter = staticmethod(time.process_time)


def measure(name: str, pacs: Path) -> dict[str, Any]:
    forecast.time = workload.time = CpuClock  # type: ignore[assignment]
    case = dict(CASES[name])
    with tempfile.TemporaryDirectory() as home:
        run = RunConfig(data="embedded", labeled="pen", test="street", method=case["method"])
        values = preset("embedded", method=case["method"]) | case
        if "size" in case:
            data = small_pacs(pacs, Path(home) / "data")
            run = RunConfig(str(data), labeled="photo", test="sketch", method=case["method"], follow_links=True)
            run = RunConfig(**vars(run) | {"size": case["size"], "model": "resnet18.tv_in1k", "weights": "none"})
            values = preset("", run.model, case["method"]) | case
        folder = Path(home) / "run"
        watch = Watch(folder)
        train(
            run, method_config(case["method"], **values), Options(device="cpu", out=str(folder), threads=1), watch=watch
        )
        actual = time.process_time() - watch.begin
    peak = Memory(torch.device("cpu")).peak()
    return {
        "run": name,
        "settings": case,
        "seconds": {"estimated": watch.estimate.seconds, "actual": actual, "told_after": watch.told},
        "memory": {"estimated": watch.estimate.memory, "actual": peak},
        "disk": {"estimated": watch.estimate.disk, "actual": watch.disk},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pacs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=CASES)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.pacs.resolve())))
        return
    about = {"command": this_command(), **environment(torch.device("cpu")), "threads": 1, "runs": []}
    for name in CASES:
        done = subprocess.run(
            [sys.executable, __file__, "--pacs", arguments.pacs, "--out", arguments.out, "--case", name],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        about["runs"].append(json.loads(done.stdout.splitlines()[-1]))
        write_json(arguments.out, about)
        print(json.dumps(about["runs"][-1], indent=1))


if __name__ == "__main__":
    main()
