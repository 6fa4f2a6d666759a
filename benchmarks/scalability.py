"""Cost of a run by the number of unlabeled domains: ProUD vs EID, on synthetic domains of one size.

Usage: python benchmarks/scalability.py --out benchmarks/results/scalability.json --figure docs/images/scalability.png

ProUD has one network for all domains, EID one adaptation model per domain. The time of a run is extrapolated from a few
timed steps of every kind of stage and the work before an epoch.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from speed import SHAPES, begin, build, repeated, seconds_of

from proud.bench.budget import kind_of
from proud.data.synthetic import synthetic_task
from proud.files import write_json
from proud.machine import choose_device, environment
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.fast import FastEpochs
from proud.training.loop import plain_epoch

DOMAINS = (2, 4, 8)


def run_seconds(method: Method, device: torch.device, steps: int) -> float:
    """Extrapolated from a few steps of every kind of stage."""
    random = Randomness(2022, device)
    cost: dict[str, tuple[float, float]] = {}
    total = 0.0
    for number, stage in enumerate(method.stage_list()):
        if kind_of(stage) not in cost:
            _, rows = begin(method, number, 0, random)
            before = seconds_of(lambda stage=stage: method.begin_epoch(stage, 0, random), device)
            work = partial(
                FastEpochs(method) if device.type == "cuda" else plain_epoch,
                *(method, replace(stage, epochs=1, steps=steps), repeated(rows, steps), random, lambda step: None),
            )
            work()
            cost[kind_of(stage)] = (before, seconds_of(work, device))
        before, seconds = cost[kind_of(stage)]
        total += stage.epochs * (before + seconds / steps * stage.steps)
    return total


def measure(data: str, device: torch.device, steps: int, **settings: Any) -> list[dict[str, Any]]:
    rows = []
    for name in ("proud", "eid"):
        for domains in DOMAINS:
            shape = SHAPES[data] | {"unlabeled": (SHAPES[data]["unlabeled"][0],) * domains}
            if device.type == "cuda":  # free the previous method
                method = None
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            precision = "bf16" if device.type == "cuda" else "fp32"
            method = build(shape, data, name, synthetic_task(shape), device, precision, **settings)
            seconds = run_seconds(method, device, steps)
            state = sum(tensor.numel() * tensor.element_size() for tensor in method.state_dict().values())
            peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
            rows.append(
                {"method": name, "domains": domains, "run_s": seconds, "state_bytes": state, "peak_bytes": peak}
            )
            print(rows[-1], flush=True)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    # relative to ProUD with the fewest domains: ratios depend less on the machine than times
    unit = rows[0]["run_s"]
    for name in ("proud", "eid"):
        mine = [row for row in rows if row["method"] == name]
        domains = [row["domains"] for row in mine]
        label = {"proud": "ProUD", "eid": "EID"}[name]
        axes[0].plot(domains, [row["run_s"] / unit for row in mine], marker="o", label=label)
        axes[1].plot(domains, [row["state_bytes"] / 2**20 for row in mine], marker="o", label=label)
    axes[0].set(xlabel="unlabeled domains", ylabel="run time relative to ProUD with 2", xticks=DOMAINS, ylim=(0, None))
    axes[1].set(xlabel="unlabeled domains", ylabel="networks and optimizers, MiB", xticks=DOMAINS, ylim=(0, None))
    axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=SHAPES, default="digits-dg")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--redraw", action="store_true", help="only draw the results in --out")
    arguments = parser.parse_args()
    if arguments.redraw:
        draw(json.loads(arguments.out.read_text(encoding="utf-8"))["rows"], arguments.figure)
        return
    device = choose_device(arguments.device)
    rows = measure(arguments.data, device, arguments.steps, batch_size=arguments.batch_size)
    command = shlex.join(["python", "benchmarks/scalability.py", *sys.argv[1:]])
    write_json(arguments.out, {"rows": rows, "data": arguments.data, "command": command, **environment(device)})
    if arguments.figure:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
