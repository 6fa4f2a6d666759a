"""Variants of a method on the development cells, with what happens inside.

Usage: python benchmarks/explore.py digits-dg --root DIR --cells syn:svhn --variants F.json --epochs 100 --out F.jsonl

Test accuracy and audited pseudo-label accuracy may guide choices on the development cells alone, so no other cell is
accepted here. The seed is none of the reported ones. Each variant is {"name", "method", ...settings}; `--variants
minus` is made by recipe.py, which also makes the tables. Variants whose pretraining is the same share it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import recipe
import speed
import torch
from table_text import this_command
from thin import thinned
from torch import Tensor

from proud import ops
from proud.bench.plan import DEVELOPMENT
from proud.config import RunConfig
from proud.data.benchmarks import open_catalog
from proud.data.source import find_task
from proud.data.types import Task
from proud.files import read_tensors, replacing, write_tensors
from proud.machine import environment
from proud.methods import method_class, method_config
from proud.methods.base import Method
from proud.methods.context import make_context, uncompiled
from proud.methods.presets import preset
from proud.nets.forward import forward_all
from proud.nets.models import ModelSpec
from proud.randomness import Randomness
from proud.training.evaluator import Evaluator
from proud.training.fast import FastEpochs, compiled_or_plain
from proud.training.loop import Epochs
from proud.training.run import load

DEVELOPMENT_CELLS = {data: tuple(":".join(cell) for cell in sorted(cells)[::-1]) for data, cells in DEVELOPMENT.items()}
SEED = 7


def build(
    task: Task, spec: ModelSpec, data: str, variant: dict[str, Any], device: torch.device, weights: str, steps: str
) -> Method:
    own = {key: value for key, value in variant.items() if key not in ("name", "method")}
    config = method_config(variant["method"], **preset(data, method=variant["method"]) | own)
    precision = "bf16" if device.type == "cuda" else "fp32"
    compile = compiled_or_plain if steps == "compiled" else uncompiled
    context = make_context(
        task.training, spec, device, weights=weights, seed=SEED, precision=precision, compile=compile
    )
    return method_class(variant["method"])(config, context)


def pretraining_key(method: Method) -> str:
    """Equal where the pretraining is."""
    seen = method.stage_list()[0].settings
    settings = asdict(method.config).items()
    return str(sorted((name, value) for name, value in settings if name != "epochs" and (seen is None or name in seen)))


def begin(method: Method, pretrained: dict[str, Tensor]) -> None:
    """Continue from a pretraining, including momentum, whichever variant it was run for."""
    own = method.state_dict()
    method.load_state_dict({name: pretrained.get(name, value).clone() for name, value in own.items()})
    weights = method.net.state_dict()
    for part in method.modules().values():  # moving averages start as the network
        if set(part.state_dict()) == set(weights):
            part.load_state_dict(weights)


def look(method: Method, evaluator: Evaluator) -> dict[str, Any]:
    """Accuracies, and statistics of features and pseudo-labels."""
    net, context, about = method.network(), method.context, method.describe()
    scores = evaluator.scores(net)
    row: dict[str, Any] = {key: round(100 * scores[key], 2) for key in scores if key.endswith("accuracy")}
    row["test_recall"] = [None if value is None else round(100 * value, 1) for value in scores["test_recall"]]
    for t, name in enumerate(context.unlabeled_names):
        start, size = context.unlabeled.starts[t], context.unlabeled.sizes[t]
        some = torch.arange(start, start + size, max(1, size // 1000), device=context.device)
        features, logits = forward_all(
            net, context.unlabeled.take(some), context.spec, context.device, context.precision
        )
        truth = evaluator.data.audits[name].labels.to(context.device)[some - start]
        unit = torch.nn.functional.normalize(features, dim=1)
        domain = {"classifier": round(100 * (logits.argmax(1) == truth).float().mean().item(), 1)}
        domain["common_mean"] = round(unit.mean(0).norm().item(), 3)
        domain["largest"] = round(
            logits.argmax(1).bincount().max().item() / len(some), 3
        )  # near 1: collapsed to one class
        found = about.pseudo_labels.get(name)
        if found is not None:
            audit = evaluator.audit(name, found)
            domain["pseudo"] = round(100 * audit["accuracy"], 1)
            domain["pseudo_recall"] = [None if value is None else round(100 * value, 1) for value in audit["recall"]]
            domain["agreement"] = round(100 * (logits.argmax(1) == found.labels[some - start]).float().mean().item(), 1)
            cosine = 1 - ops.cosine_distance(found.prototypes, found.prototypes)
            off = cosine[~torch.eye(len(cosine), dtype=torch.bool, device=cosine.device)]
            domain["prototype_cosine"] = round(off.mean().item(), 3)
            if about.certainty is not None:
                ratio = about.certainty(found.uncertainty)
                domain["lambda"] = round(ratio.mean().item(), 3)
                domain["certain"] = round((ratio > about.threshold).float().mean().item(), 3)
        row[name] = domain
    return row


def pretrain(method: Method, runner: Epochs, random: Randomness, kept: Path) -> dict[str, Tensor]:
    """Train the first stage, or read what an earlier variant, cell or process has kept."""
    if kept.is_file():
        return {name: value.to(method.context.device) for name, value in read_tensors(kept).items()}
    for epoch in range(method.stage_list()[0].epochs):
        runner(method, *speed.begin(method, 0, epoch, random), random, lambda step: None)
    state = {name: value.clone() for name, value in method.state_dict().items()}
    with replacing(kept) as part:
        write_tensors(part, state, "proud-explore-1")
    return state


class Explorer:
    """Runs jobs, each a variant on a cell, in one process."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = torch.device(arguments.device)
        self.catalog, self.memory = open_catalog(arguments.data, arguments.root), {}
        self.deadline = arguments.started + 60 * arguments.minutes
        about = environment(self.device) | {"seed": SEED, "data": arguments.data, "command": arguments.command}
        self.about = about | {"weights": Path(arguments.weights).name, "size": arguments.size, "thin": arguments.thin}
        self.tasks: dict[str, tuple[Task, ModelSpec]] = {}

    def task(self, cell: str) -> tuple[Task, ModelSpec]:
        if cell not in self.tasks:
            labeled, test = cell.split(":")
            arguments = self.arguments
            run = RunConfig(labeled=labeled, test=test, size=arguments.size, weights=arguments.weights, seed=SEED)
            task, spec = load(run, find_task(run, self.catalog), memory=self.memory)
            for site, share in arguments.thin:
                task = thinned(task, site, float(share), SEED)
            self.tasks[cell] = task, spec
        return self.tasks[cell]

    def __call__(self, cell: str, variant: dict[str, Any]) -> dict[str, Any] | None:
        """The row of one job; None: out of time."""
        arguments, started = self.arguments, time.time()
        if started > self.deadline:
            return None
        task, spec = self.task(cell)
        method = build(task, spec, arguments.data, variant, self.device, arguments.weights, arguments.steps)
        runner = Epochs() if arguments.steps == "plain" else FastEpochs(method, arguments.steps == "compiled")
        random = Randomness(SEED, self.device)
        evaluator = Evaluator(task.evaluation, method.context.spec, self.device, method.context.precision)
        key = hashlib.sha256(f"{cell} {arguments.thin} {pretraining_key(method)} {spec}".encode()).hexdigest()[:16]
        begin(method, pretrain(method, runner, random, Path(arguments.pretrained) / f"{key}.safetensors"))
        trail = [{"epoch": 0, **look(method, evaluator)}]
        last = min(arguments.epochs, method.stage_list()[1].epochs)
        for epoch in range(last):
            losses = runner(method, *speed.begin(method, 1, epoch, random), random, lambda step: None)
            if (epoch + 1) % arguments.every == 0 or epoch in (0, last - 1):
                means = {name: round(value.mean().item(), 3) for name, value in losses.items()}
                trail.append({"epoch": epoch + 1, "losses": means, **look(method, evaluator)})
            if time.time() > self.deadline:
                break
        seconds = round(time.time() - started, 1)
        return {"cell": cell, "variant": variant, "seconds": seconds, "trail": trail, **self.about}


Job = tuple[str, dict[str, Any]]  # cell and variant


def jobs_of(cells: Sequence[str], variants: list[dict[str, Any]], compiled: bool) -> list[list[Job]]:
    """What one process takes at a time: one job or, as compiled code serves all cells, all those of a variant."""
    if compiled:
        return [[(cell, variant) for cell in cells] for variant in variants]
    return [[(cell, variant)] for cell in cells for variant in variants]


def work(arguments: argparse.Namespace, jobs: Any, rows: Any) -> None:
    """A process that takes jobs until there are none left."""
    torch.set_num_threads(1)
    explorer = Explorer(arguments)
    while (taken := jobs.get()) is not None:
        for cell, variant in taken:
            try:
                rows.put(explorer(cell, variant))
            except Exception as error:  # one variant that fails does not end the others
                rows.put(f"{cell} {variant['name']}: {type(error).__name__}: {error}")


def spread(arguments: argparse.Namespace, todo: list[list[Job]]) -> Iterator[Any]:
    """The rows of all jobs, from several processes on one device."""
    context = torch.multiprocessing.get_context("spawn")
    jobs, rows = context.Queue(), context.Queue()
    for job in [*todo, *[None] * arguments.workers]:
        jobs.put(job)
    processes = [context.Process(target=work, args=(arguments, jobs, rows)) for _ in range(arguments.workers)]
    for process in processes:
        process.start()
    for _ in chain(*todo):
        yield rows.get()
    for process in processes:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=DEVELOPMENT_CELLS)
    parser.add_argument("--root", required=True)
    parser.add_argument("--cells", required=True, help="all, or LABELED:TEST,…")
    parser.add_argument("--variants", required=True, help="a JSON file, or `minus` (see recipe.py)")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of all variants")
    parser.add_argument(
        "--thin",
        nargs="*",
        default=[],
        type=lambda pair: pair.split("="),
        metavar="SITE=SHARE",
        help="train on so many of the images of a site, drawn by the seed: sketch=0.05",
    )
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=0, help="pixels, if not those of the data set")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--steps",
        choices=("compiled", "captured", "plain"),
        default="compiled",
        help="captured: a CUDA graph that is not compiled, for trials too short to wait for the compiler",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--pretrained", default="", help="folder in which all variants and processes share pretraining")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    arguments = parser.parse_args()
    arguments.started, arguments.command = time.time(), this_command()
    every = DEVELOPMENT_CELLS[arguments.data]
    cells = every if arguments.cells == "all" else arguments.cells.split(",")
    for cell in cells:
        if cell not in every:
            raise SystemExit(f"{cell} is not a development cell: its test accuracy must not guide choices")
    common = {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in arguments.set)}
    variants = [variant | common for variant in recipe.variants(arguments.variants, arguments.data)]
    todo = jobs_of(cells, variants, arguments.steps == "compiled")
    with tempfile.TemporaryDirectory() as here:
        arguments.pretrained = arguments.pretrained or here
        found = spread(arguments, todo) if arguments.workers > 1 else starmap(Explorer(arguments), chain(*todo))
        for row in found:
            if not isinstance(row, dict):
                print(row or "out of time", flush=True)
                continue
            last = row["trail"][-1]
            recall = recipe.worst_recall(row)
            print(
                row["cell"],
                row["variant"]["name"],
                last["epoch"],
                last["test_accuracy"],
                recall,
                row["seconds"],
                flush=True,
            )
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
