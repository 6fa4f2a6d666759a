"""Where the time of a training step goes: GPU kernels of the fast loop by kind.

Usage: python benchmarks/step_profile.py --out FILE [--data digits-dg,pacs] [--methods proud,proud-plus]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import speed
import torch
from table_text import this_command
from torch.profiler import ProfilerActivity, profile

from proud.data.synthetic import synthetic_task
from proud.files import check_writable, write_json
from proud.machine import choose_device, environment
from proud.methods.base import Method
from proud.randomness import Randomness
from proud.training.fast import FastEpochs
from proud.training.loop import plain_epoch

# the first word that a kernel's name contains decides; later kinds are more general
KINDS: dict[str, tuple[str, ...]] = {
    "optimizer and weight average": ("multi_tensor", "fused_sgd", "foreach"),
    "random numbers": ("distribution", "philox"),
    "batch norm": ("bn_fw", "bn_bw", "batch_norm", "batchnorm"),
    "pooling": ("pool",),
    "convolution": ("fprop", "dgrad", "wgrad", "implicit_gemm", "conv", "cudnn"),
    "spectra of NoiseMix": ("fft",),
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "splitk"),
    "compiled: augmentation, NoiseMix, mixing, losses": ("triton",),
    "copies": ("memcpy", "memset", "copy", "cat"),
}


def kind_of(kernel: str) -> str:
    name = kernel.lower()
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other")


def kernels(method: Method, epoch: Any, steps: int) -> list[dict[str, Any]]:
    """Kernels of `steps` steps of the main stage after an epoch of warming up: name, calls and microseconds."""
    device = method.context.device
    random = Randomness(2022, device)
    stage, rows = speed.begin(method, -1, 0, random)
    stage, some = replace(stage, steps=steps), speed.repeated(rows, steps)
    epoch(method, stage, some, random, lambda step: None)
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as found:
        epoch(method, stage, some, random, lambda step: None)
        if cuda:
            torch.cuda.synchronize()
    events = [
        (event.key, event.count, event.self_device_time_total if cuda else event.self_cpu_time_total)
        for event in found.key_averages()
    ]
    return [{"name": name, "calls": count, "us": time} for name, count, time in events if time > 0]


def by_kind(found: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    total: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for kernel in found:
        entry = total[kind_of(kernel["name"])]
        entry[0] += kernel["us"] / 1000 / steps
        entry[1] += kernel["calls"] / steps
    rows = [{"kind": kind, "ms": ms, "kernels": calls} for kind, (ms, calls) in total.items()]
    return sorted(rows, key=lambda row: -row["ms"])


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="digits-dg,pacs")
    parser.add_argument("--methods", default="proud,proud-plus")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    check_writable(arguments.out)
    device, steps, found = choose_device(arguments.device), arguments.steps, []
    cuda = device.type == "cuda"
    for data in arguments.data.split(","):
        shape = speed.SHAPES[data]
        task = synthetic_task(shape)
        for name in arguments.methods.split(","):
            method = speed.build(shape, data, name, task, device, "bf16" if cuda else "fp32", cuda)
            epoch = FastEpochs(method) if cuda else plain_epoch
            step_ms = speed.step_milliseconds(method, epoch, steps, 3)
            each = kernels(method, epoch, steps)
            longest = sorted(each, key=lambda kernel: -kernel["us"])[:15]
            rows = by_kind(each, steps)
            found.append({"data": data, "method": name, "step_ms": step_ms, "kinds": rows, "longest": longest})
            print(data, name, f"{step_ms:.3f} ms", {row["kind"]: round(row["ms"], 3) for row in rows}, flush=True)
    write_json(arguments.out, {"steps": steps, "rows": found} | environment(device) | {"command": this_command()})


if __name__ == "__main__":
    main()
