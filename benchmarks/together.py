"""Several runs on one GPU at once: how many of their steps it does in a second.

Usage: python benchmarks/together.py --data digits-dg --method proud --counts 1,2,4,8 --out FILE

`streams`: one process; the runs' captured steps are launched in turn, each run on a stream of its own. `processes`: as
many processes of one run each, which begin together, under MPS if its daemon can be started. A step is the same graph
in both, so a run's result does not depend on its neighbours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import speed
import torch
from table_text import this_command

from proud.data.synthetic import synthetic_task
from proud.files import check_writable, write_json
from proud.machine import choose_device, environment
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.fast import FastEpochs


def stepper(method: Method, number: int) -> Callable[[], Any]:
    """One step of the main stage: a graph on CUDA, after compiling and capturing it; a plain step elsewhere."""
    random = Randomness(number, method.context.device)
    stage, rows = speed.begin(method, -1, 0, random)
    wanted = method.draws(stage)
    if method.context.device.type != "cuda":
        first = {name: table[0] for name, table in rows.items()}
        return lambda: method.step(stage, first, random.draws(wanted), method.losses)
    epochs = FastEpochs(method)
    epochs(method, stage, rows, random, lambda step: None)
    captured = epochs.captured[stage.name]
    if captured is None:
        raise SystemExit("a step cannot be captured here")

    def step() -> None:
        if step.done % stage.steps == 0:
            captured.counter.zero_()
        random.raw(wanted, out=captured.raw)
        captured.graph.replay()
        step.done += 1

    step.done = 0
    return step


def seconds_together(steppers: list[Callable[[], Any]], device: torch.device, steps: int) -> float:
    streams = [torch.cuda.Stream() if device.type == "cuda" else None for _ in steppers]

    def work() -> None:
        for _ in range(steps):
            for step, stream in zip(steppers, streams, strict=True):
                with torch.cuda.stream(stream) if stream else nullcontext():
                    step()

    speed.seconds_of(work, device)
    return speed.seconds_of(work, device)


def worker(build: Callable[[], Method], device: torch.device, steps: int) -> None:
    """Says that it is ready, waits for a line, and prints the seconds that its steps took."""
    step = stepper(build(), 0)
    print("ready", flush=True)
    sys.stdin.readline()
    print(speed.seconds_of(lambda: [step() for _ in range(steps)], device), flush=True)


def seconds_of_processes(count: int, words: list[str]) -> float:
    """From the common start to the end of the last one."""
    command = [sys.executable, __file__, *words, "--worker"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for child in children:
        if child.stdout.readline().strip() != "ready":
            raise SystemExit("a worker did not start")
    started = time.perf_counter()
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.stdout.readline()
    seconds = time.perf_counter() - started
    for child in children:
        child.communicate()
    return seconds


@contextmanager
def mps() -> Iterator[bool]:
    """NVIDIA's MPS daemon, if it is installed."""
    if not shutil.which("nvidia-cuda-mps-control"):
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            yield True
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False)
            del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=speed.SHAPES, default="digits-dg")
    parser.add_argument("--method", default="proud")
    parser.add_argument("--counts", default="1,2,4,8", help="numbers of runs")
    parser.add_argument("--steps", type=int, default=750)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    device = choose_device(arguments.device)
    shape, steps = speed.SHAPES[arguments.data], arguments.steps
    task = synthetic_task(shape)

    def build() -> Method:
        cuda = device.type == "cuda"
        return speed.build(shape, arguments.data, arguments.method, task, device, "bf16" if cuda else "fp32", cuda)

    if arguments.worker:
        return worker(build, device, steps)
    check_writable(arguments.out)
    rows: list[dict[str, Any]] = []

    def note(how: str, count: int, seconds: float) -> None:
        rows.append({"how": how, "runs": count, "step_ms": 1000 * seconds / steps / count})
        print(rows[-1], flush=True)

    counts = [int(count) for count in arguments.counts.split(",")]
    steppers = [stepper(build(), number) for number in range(max(counts))]
    for count in counts:
        note("streams", count, seconds_together(steppers[:count], device, steps))
    del steppers
    with mps() as shared:
        for count in counts:
            note("processes", count, seconds_of_processes(count, sys.argv[1:] if words is None else words))
    about = {"data": arguments.data, "method": arguments.method, "steps": steps, "mps": shared}
    write_json(arguments.out, about | {"rows": rows} | environment(device) | {"command": this_command()})


if __name__ == "__main__":
    main()
