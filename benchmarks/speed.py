"""Training speed on this machine: the plain loop and the fast one, measured in one run.

Usage: python benchmarks/speed.py --data digits-dg --seconds 20 --out FILE [--method proud] [--full]

The images are random pixels in a benchmark's counts and sizes: pixel values do not change how long a step takes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from table_text import this_command
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from proud.config import RunConfig
from proud.data.synthetic import synthetic_task
from proud.data.types import Task
from proud.files import check_writable, write_json
from proud.machine import Stopped, choose_device, choose_threads, environment
from proud.methods import method_class, method_config
from proud.methods.base import Method, Stage
from proud.methods.context import make_context, uncompiled
from proud.methods.presets import preset
from proud.methods.proud import ProUD
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.fast import FastEpochs, compiled_or_plain, restore
from proud.training.loop import Epochs, Loop, Progress, plain_epoch
from proud.training.run import load
from proud.training.run_folder import RunFolder

SMALL: dict[str, Any] = {"model": "digits", "size": 32, "classes": 10}
# labeled, unlabeled and test images of one combination
SHAPES: dict[str, dict[str, Any]] = {
    "digits-dg": SMALL | {"labeled": 4800, "unlabeled": (4800, 4800), "test": 6000},
    "pacs": {"model": "resnet18.tv_in1k", "size": 224, "classes": 7}
    | {"labeled": 1499, "unlabeled": (1840, 2107), "test": 3929},
    "embedded": SMALL | {"labeled": 360, "unlabeled": (400, 400), "test": 400},
}
TABLE_RUNS = 36  # 12 combinations × 3 seeds


def build(
    shape: dict[str, Any],
    data: str,
    name: str,
    task: Task,
    device: torch.device,
    precision: Any,
    fast: bool = False,
    **settings: Any,
) -> Method:
    """`fast`: also compile the method's full passes."""
    spec = model_spec(shape["model"], shape["classes"], shape["size"])
    compile = compiled_or_plain if fast else uncompiled
    context = make_context(task.training, spec, device, weights="none", seed=2022, precision=precision, compile=compile)
    return method_class(name)(method_config(name, **preset(data, method=name) | settings), context)


def begin(method: Method, number: int, epoch: int, random: Randomness) -> tuple[Stage, dict[str, Tensor]]:
    """Begin an epoch of the given stage; returns the stage and the epoch's row numbers."""
    stage = method.stage_list()[number]
    random.begin_epoch(stage.name, epoch)
    method.begin_epoch(stage, epoch, random)
    return stage, {name: rows.to(method.context.device) for name, rows in method.rows(stage, random).items()}


def repeated(rows: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    return {name: table.repeat(-(-steps // len(table)), 1)[:steps] for name, table in rows.items()}


def seconds_of(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def step_milliseconds(method: Method, epoch: Callable[..., Any], steps: int, repeats: int) -> float:
    """Median over epochs of `steps` steps, from draws to optimizer, after one warm-up epoch."""
    device = method.context.device
    random = Randomness(2022, device)
    stage, rows = begin(method, -1, 0, random)
    stage, some = replace(stage, steps=steps), repeated(rows, steps)

    def work() -> None:
        epoch(method, stage, some, random, lambda step: None)

    work()
    return 1000 / steps * median(seconds_of(work, device) for _ in range(repeats))


def epoch_begin_milliseconds(method: Method, repeats: int) -> float:
    """Work before an epoch: pseudo-labels of all unlabeled domains and prototypes of the labeled one."""
    random = Randomness(2022, method.context.device)
    stage, _ = begin(method, -1, 0, random)
    method.begin_epoch(stage, 1, random)
    times = [seconds_of(lambda: method.begin_epoch(stage, 1, random), method.context.device) for _ in range(repeats)]
    return 1000 * median(times)


def labeled_milliseconds(method: ProUD, repeats: int) -> float:
    """The labeled domain's part of it."""
    random = Randomness(2022, method.context.device)

    def work() -> None:
        with torch.no_grad():
            method.seen(0, random).class_means(method.context.labels, method.index.count, method.net.num_features)

    work()
    return 1000 * median(seconds_of(work, method.context.device) for _ in range(repeats))


def matmul_peak(device: torch.device) -> float:
    """FLOP/s of a large matrix product, as an upper limit for a step."""
    side, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a = torch.randn(side, side, device=device).to(dtype)
    b = torch.randn(side, side, device=device).to(dtype)
    out = torch.empty_like(a)
    for _ in range(3):
        torch.mm(a, b, out=out)
    repeats = 10
    seconds = seconds_of(lambda: [torch.mm(a, b, out=out) for _ in range(repeats)], device)
    return 2 * side**3 * repeats / seconds


def step_cost(method: Method) -> tuple[int, int]:
    """FLOP of a step, and the number of images that pass through the network in it."""
    images: list[int] = []
    random = Randomness(2022, method.context.device)
    stage, rows = begin(method, -1, 0, random)
    batch = {name: table[0] for name, table in rows.items()}
    hook = method.net.backbone.register_forward_pre_hook(lambda _, inputs: images.append(len(inputs[0])))
    with FlopCounterMode(display=False) as counter:
        method.step(stage, batch, random.draws(method.draws(stage)), method.losses)
    hook.remove()
    return counter.get_total_flops(), sum(images)


class Operations(TorchDispatchMode):
    """Counts operations that compute something: each is at least one launch on a GPU; views are not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        views = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
        made = any(word in schema.name for word in ("empty", "detach", "_local_scalar_dense"))
        self.count += not (views or made)
        return func(*args, **(kwargs or {}))


def operations_per_step(method: Method) -> dict[str, int]:
    """Operations of a plain step, by part."""
    random = Randomness(2022, method.context.device)
    stage, rows = begin(method, -1, 0, random)
    batch = {name: table[0] for name, table in rows.items()}
    with Operations() as counter:
        draws = random.draws(method.draws(stage))
        drawn = counter.count
        losses = method.losses(stage, batch, draws)
        passed = counter.count
        method.optimizer.zero_grad()
        losses["loss"].backward()
        back = counter.count
        method.optimizer.step()
    parts = {"draws": drawn, "losses": passed - drawn, "backward": back - passed, "optimizer": counter.count - back}
    return parts | {"all": counter.count}


def real_epochs(method: Method, task: Task, fast: bool, seconds: float) -> dict[str, float]:
    """Train for a while as a run does, with checkpoints: seconds per epoch of both stages, and start-up time."""
    times: dict[str, list[float]] = {}
    started = last = time.perf_counter()
    first_main: list[float] = []
    held: list[int] = []  # bytes of tensors after each main epoch

    def watch(progress: Progress) -> None:
        nonlocal last
        if progress.record is None:
            return
        now = time.perf_counter()
        times.setdefault(progress.stage, []).append(now - last)
        last = now
        if progress.stage == "main" and fast:
            held.append(torch.cuda.memory_allocated())
        if progress.stage == "main" and not first_main:
            first_main.append(now)
        if first_main and now - first_main[0] > seconds:
            raise Stopped

    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(
            method, task, RunFolder(Path(folder)), {}, epochs=FastEpochs(method) if fast else Epochs(), watch=watch
        )
        loop.stages[0] = replace(loop.stages[0], epochs=min(10, loop.stages[0].epochs))
        with suppress(Stopped):
            loop.run()
    pretrain, main = times["pretrain"], times["main"]
    start_up = pretrain[0] - median(pretrain) + main[0] - median(main[1:] or main)
    memory = {"memory_first_mib": held[1] / 2**20, "memory_last_mib": held[-1] / 2**20} if len(held) > 1 else {}
    return memory | {
        "pretrain_epoch_s": sum(pretrain[1:]) / max(1, len(pretrain) - 1),
        "main_epoch_s": sum(main[1:]) / max(1, len(main) - 1),
        "main_epochs_timed": len(main) - 1,
        "start_up_s": start_up,
        "measured_s": time.perf_counter() - started,
    }


def table_minutes(method: Method, epochs: dict[str, float]) -> float:
    """Time of the paper's whole table for one method."""
    config = method.config
    run = config.pretrain_epochs * epochs["pretrain_epoch_s"] + config.epochs * epochs["main_epoch_s"]
    return TABLE_RUNS * (run + epochs["start_up_s"]) / 60


def equality(data: str, name: str, device: torch.device, steps: int = 50, pretrain_epochs: int = 20) -> dict[str, Any]:
    """Largest relative differences from the plain loop's loss curve: same draws, fp32, TF32 off.

    Compared with it: the same loop again; the same loop from weights changed by one rounding (how fast SGD amplifies
    rounding); and, on CUDA, the fast loop. Curves start after some pretraining: earlier the amplification is largest.
    """
    shape = SHAPES[data]
    torch.backends.cudnn.deterministic, before = True, torch.backends.cudnn.deterministic
    # on random pixels pseudo-labels depend on rounding, so small shapes use the built-in digits
    task = synthetic_task(shape) if shape["size"] > 64 else load(RunConfig(labeled="pen", test="street"))[0]
    method = build(shape, data, name, task, device, "fp32", batch_size=128)
    random = Randomness(2022, device)
    for epoch in range(pretrain_epochs):
        stage, rows = begin(method, 0, epoch, random)
        plain_epoch(method, stage, rows, random, lambda step: None)
    stage, rows = begin(method, -1, 0, random)
    some = repeated(rows, steps)
    start = {key: value.clone() for key, value in method.state_dict().items()}

    def curve(run_epoch: Callable[..., dict[str, Tensor]], rounding: float = 0.0) -> Tensor:
        restore(method, start)
        with torch.no_grad():
            for parameter in method.net.parameters():
                parameter.mul_(1 + rounding)
        random.begin_epoch(stage.name, 0)
        return run_epoch(method, replace(stage, steps=steps), some, random, lambda step: None)["loss"]

    plain = curve(plain_epoch)
    others = {"plain": curve(plain_epoch), "nudged": curve(plain_epoch, torch.finfo(torch.float32).eps)}
    if device.type == "cuda":
        others["fast"] = curve(FastEpochs(method))
    torch.backends.cudnn.deterministic = before
    found: dict[str, Any] = {"steps": steps}
    for other, losses in others.items():
        difference = (losses - plain).abs() / plain.abs()
        found[f"{other}_vs_plain"] = difference.max().item()
        found[f"{other}_vs_plain_until"] = {
            step: difference[:step].max().item() for step in (1, 5, 10, 20, 30, 40, 50) if step <= steps
        }
    return found


def scaling(data: str, name: str, device: torch.device, precision: str) -> list[dict[str, float]]:
    """Cost of an epoch's parts with 2, 4 and 8 unlabeled domains of one size."""
    found = []
    for domains in (2, 4, 8):
        shape = SHAPES[data] | {"unlabeled": (SHAPES[data]["unlabeled"][0],) * domains}
        fast = device.type == "cuda"
        method = build(shape, data, name, synthetic_task(shape), device, precision, fast)
        epoch = FastEpochs(method) if fast else plain_epoch
        begin_ms, steps = epoch_begin_milliseconds(method, 3), method.stage_list()[-1].steps
        step_ms = step_milliseconds(method, epoch, steps, 2)
        found.append({"domains": domains, "epoch_begin_ms": begin_ms, "step_ms": step_ms, "steps": steps})
    return found


def measure(data: str, name: str, device: torch.device, seconds: float, full: bool) -> dict[str, Any]:
    """All measurements as one JSON-serialisable dict."""
    shape, cuda = SHAPES[data], device.type == "cuda"
    task = synthetic_task(shape)
    precision = "bf16" if cuda else "fp32"
    steps, repeats = (75, 3) if cuda else (3, 1)
    method = build(shape, data, name, task, device, precision)
    result: dict[str, Any] = {"data": data, "method": name, "precision": precision}
    peak, (flops, images) = matmul_peak(device), step_cost(method)
    result |= {"batch_size": method.config.batch_size, "matmul_peak_tflops": peak / 1e12}
    result |= {"step_gflop": flops / 1e9, "images_per_step": images}
    if type(method).step is Method.step:
        result["operations"] = operations_per_step(method)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for label in ("plain", "fast") if cuda else ("plain",):
        method = build(shape, data, name, task, device, precision, label == "fast")
        epoch = FastEpochs(method) if label == "fast" else plain_epoch
        begin_ms, ms = epoch_begin_milliseconds(method, repeats), step_milliseconds(method, epoch, steps, repeats)
        share = flops / (ms / 1000) / peak
        result[label] = {"step_ms": ms, "images_per_s": 1000 * images / ms, "share_of_peak": share}
        result[label]["epoch_begin_ms"] = begin_ms
        if isinstance(method, ProUD):
            result[label]["dapp_ms"] = begin_ms - labeled_milliseconds(method, repeats)
    if cuda:
        result["ratio"] = result["plain"]["step_ms"] / result["fast"]["step_ms"]
        result["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if full:
        if cuda:
            result["equality"] = equality(data, name, device)
        result["scaling"] = scaling(data, name, device, precision)
    if seconds:
        method = build(shape, data, name, task, device, precision, cuda)
        result["epochs"] = real_epochs(method, task, cuda, seconds)
        result["table_minutes"] = table_minutes(method, result["epochs"])
    return result


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=SHAPES, default="embedded", help="benchmark whose image counts are used")
    parser.add_argument("--method", default="proud")
    parser.add_argument("--seconds", type=float, default=0.0, help="also train this long, to extrapolate a whole table")
    parser.add_argument("--full", action="store_true", help="also compare loss curves; 2, 4 and 8 unlabeled domains")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: half the cores)")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    check_writable(arguments.out)
    device, threads = choose_device(arguments.device), choose_threads(arguments.threads)
    found = measure(arguments.data, arguments.method, device, arguments.seconds, arguments.full)
    found |= environment(device) | {"threads": threads, "command": this_command()}
    write_json(arguments.out, found)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
