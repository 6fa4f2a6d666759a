"""Training steps on a CPU: fp32 in torch's default layout and in one piece, as proud trains, and in bf16.

Usage: python benchmarks/cpu_training.py --out benchmarks/results/cpu_training.json

Steps of one method on random images in the sizes that a CPU gets by default. All variants alternate. On a shared
machine, CPU time says more than wall time. bf16 is fast only on CPUs that compute in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import speed
import torch
from table_text import this_command

from proud.data.synthetic import synthetic_task
from proud.files import check_writable, write_json
from proud.machine import choose_threads, environment
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.loop import plain_epoch

CPU = torch.device("cpu")
FEW = {"labeled": 160, "unlabeled": (160, 160), "test": 40}
SHAPES: dict[str, tuple[str, dict[str, Any], int]] = {
    "digits net, 32 px, batch 128": ("digits-dg", speed.SHAPES["digits-dg"] | FEW, 128),
    "ResNet-18, 128 px, batch 32": ("pacs", speed.SHAPES["pacs"] | FEW | {"size": 128}, 32),
}
VARIANTS = {"fp32, default layout": "fp32", "fp32": "fp32", "bf16": "bf16"}


def in_default_layout(method: Method) -> Method:
    for net in (method.net, method.network()):
        net.to(memory_format=torch.contiguous_format)
        net.features = net.backbone.forward  # type: ignore[method-assign]
    for state in method.optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].contiguous()
    return method


def stepper(method: Method, steps: int) -> Callable[[], Any]:
    random = Randomness(2022, CPU)
    stage, rows = speed.begin(method, -1, 0, random)
    some = speed.repeated(rows, steps)
    return partial(plain_epoch, method, replace(stage, steps=steps), some, random, lambda step: None)


def measure(name: str, method: str, steps: int, repeats: int) -> dict[str, Any]:
    data, shape, batch = SHAPES[name]
    task, loops = synthetic_task(shape), {}
    for label, precision in VARIANTS.items():
        built = speed.build(shape, data, method, task, CPU, precision, batch_size=batch)
        loops[label] = stepper(in_default_layout(built) if "default" in label else built, steps)
    for loop in loops.values():
        loop()
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        runs.append({})
        for label, loop in loops.items():
            started = time.process_time()
            loop()
            runs[-1][label] = (time.process_time() - started) / steps
    first = next(iter(VARIANTS))
    return {
        "step": name,
        "runs": runs,
        "seconds": {label: median(run[label] for run in runs) for label in VARIANTS},
        "ratio": {label: median(run[first] / run[label] for run in runs) for label in VARIANTS},
    }


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", default="proud-plus")
    parser.add_argument("--only", default="", help="steps whose names contain this")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    check_writable(given.out)
    threads = choose_threads(given.threads)
    rows = [measure(name, given.method, given.steps, given.repeats) for name in SHAPES if given.only in name]
    about = environment(CPU) | {"threads": threads, "seed": 2022, "command": this_command()}
    write_json(given.out, {"method": given.method, "rows": rows} | about)
    for row in rows:
        print(row["step"], {label: round(value, 2) for label, value in row["ratio"].items()})


if __name__ == "__main__":
    main()
