"""Trials on the development cells: variants of a method, with test accuracy and pseudo-labels over the epochs.

Usage: python benchmarks/explore.py digits-dg --root DIR --cells syn:svhn --variants F.json --epochs 100 --out F.jsonl

Test accuracy and true pseudo-label accuracy may guide choices on the four development cells only, so other cells are
rejected. The seed is not a reported one. Each variant is {"name", "method", ...settings}; variants whose settings
differ only in the main phase share their pretraining.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import speed
import torch
from torch import Tensor

from proud import ops
from proud.bench.plan import DEVELOPMENT
from proud.data.benchmarks import catalog_for
from proud.data.task import assemble
from proud.data.types import Task
from proud.machine import environment
from proud.methods import method_class, method_config
from proud.methods.base import Method
from proud.methods.context import make_context
from proud.methods.presets import preset
from proud.nets.forward import forward_all
from proud.nets.models import model_spec
from proud.randomness import Randomness
from proud.training.evaluator import Evaluator
from proud.training.fast import FastEpochs
from proud.training.loop import plain_epoch

DEVELOPMENT_CELLS = {data: tuple(":".join(cell) for cell in sorted(cells)[::-1]) for data, cells in DEVELOPMENT.items()}
SEED = 7


def build(task: Task, data: str, variant: dict[str, Any], device: torch.device, weights: str) -> Method:
    own = {key: value for key, value in variant.items() if key not in ("name", "method")}
    settings = preset(data, method=variant["method"]) | own
    config = method_config(variant["method"], **settings)
    model = "digits" if data == "digits-dg" else "resnet18.tv_in1k"
    spec = model_spec(model, len(task.training.classes), task.size)
    precision = "bf16" if device.type == "cuda" else "fp32"
    context = make_context(task.training, spec, device, weights=weights, seed=SEED, precision=precision)  # type: ignore[arg-type]
    return method_class(variant["method"])(config, context)


def thinned(task: Task, rarest: float) -> Task:
    """Fewer labeled images: the rarest class has `rarest` times as many as the most frequent one."""
    domain, generator = task.training.labeled, torch.Generator().manual_seed(SEED)
    there = domain.labels.bincount(minlength=len(task.training.classes))
    order = torch.randperm(len(there), generator=generator)
    share = rarest ** (order / (len(there) - 1))
    counts = ((there / share).min() * share).long()
    rows = []
    for k, count in enumerate(counts.tolist()):
        own = (domain.labels == k).nonzero().flatten()
        rows.append(own[torch.randperm(len(own), generator=generator)[:count]])
    kept = torch.cat(rows).sort().values
    labeled = replace(domain, images=domain.images[kept], labels=domain.labels[kept])
    return replace(task, training=replace(task.training, labeled=labeled))


def begin(method: Method, pretrained: dict[str, Tensor]) -> None:
    """Continue from a pretraining, including momentum, whichever variant it was run for."""
    own = method.state_dict()
    method.load_state_dict({name: pretrained.get(name, value).clone() for name, value in own.items()})
    weights = method.net.state_dict()
    for part in method.parts().values():  # moving averages start as the network
        if isinstance(part, torch.nn.Module) and set(part.state_dict()) == set(weights):
            part.load_state_dict(weights)


def look(method: Method, evaluator: Evaluator) -> dict[str, Any]:
    """Accuracies, and statistics of features and pseudo-labels."""
    net, context, pseudo = method.network(), method.context, method.describe().pseudo_labels
    row: dict[str, Any] = {key: round(100 * value, 2) for key, value in evaluator.scores(net).items()}
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
        found = pseudo.get(name)
        if found is not None:
            domain["pseudo"] = round(100 * evaluator.audit(name, found)["accuracy"], 1)
            domain["agreement"] = round(100 * (logits.argmax(1) == found.labels[some - start]).float().mean().item(), 1)
            cosine = 1 - ops.cosine_distance(found.prototypes, found.prototypes)
            off = cosine[~torch.eye(len(cosine), dtype=torch.bool, device=cosine.device)]
            domain["prototype_cosine"] = round(off.mean().item(), 3)
            ratio = ops.certainty_ratio(found.uncertainty, method.config.tau_ratio)
            domain["lambda"] = round(ratio.mean().item(), 3)
            domain["certain"] = round((ratio > method.threshold).float().mean().item(), 3)
        row[name] = domain
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=DEVELOPMENT_CELLS)
    parser.add_argument("--root", required=True)
    parser.add_argument("--cells", required=True)
    parser.add_argument("--variants", type=Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=0, help="pixels, if not those of the data set")
    parser.add_argument("--rarest", type=float, default=0, help="thin out classes of the labeled domain, e.g. 0.1")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    device = torch.device(arguments.device)
    catalog, cache = catalog_for(arguments.data, arguments.root), {}
    variants = json.loads(arguments.variants.read_text())
    about = environment(device) | {"seed": SEED, "data": arguments.data, "weights": Path(arguments.weights).name}
    about |= {name: getattr(arguments, name) for name in ("size", "rarest") if getattr(arguments, name)}
    for cell in arguments.cells.split(","):
        if cell not in DEVELOPMENT_CELLS[arguments.data]:
            raise SystemExit(f"{cell} is not a development cell: its test accuracy must not guide choices")
        labeled, test = cell.split(":")
        size = arguments.size or (32 if arguments.data == "digits-dg" else 224)
        task = assemble(catalog, labeled=labeled, test=test, size=size, seed=SEED, cache=cache)
        task = thinned(task, arguments.rarest) if arguments.rarest else task
        pretrained: dict[str, dict[str, Tensor]] = {}
        for variant in variants:
            if time.monotonic() > deadline:
                print("out of time before", variant["name"])
                return
            started = time.monotonic()
            method = build(task, arguments.data, variant, device, arguments.weights)
            runner = FastEpochs(method) if device.type == "cuda" else plain_epoch
            random = Randomness(SEED, device)
            evaluator = Evaluator(task.evaluation, method.context.spec, device, method.context.precision)
            pretrain, main_stage = method.stage_list()
            later = {"epochs", *method.MAIN_ONLY}  # settings without effect on pretraining
            settings = asdict(method.config).items()
            key = str(sorted((name, value) for name, value in settings if value and name not in later))
            if key not in pretrained:
                for epoch in range(pretrain.epochs):
                    runner(method, *speed.begin(method, 0, epoch, random), random, lambda step: None)
                pretrained[key] = {name: value.clone() for name, value in method.state_dict().items()}
            begin(method, pretrained[key])
            trail = [{"epoch": 0, **look(method, evaluator)}]
            for epoch in range(min(arguments.epochs, main_stage.epochs)):
                losses = runner(method, *speed.begin(method, 1, epoch, random), random, lambda step: None)
                if (epoch + 1) % arguments.every == 0 or epoch in (0, 9):
                    means = {name: round(value.mean().item(), 3) for name, value in losses.items()}
                    trail.append({"epoch": epoch + 1, "losses": means, **look(method, evaluator)})
                    print(cell, variant["name"], json.dumps(trail[-1]), flush=True)
                if time.monotonic() > deadline:
                    break
            row = {
                "cell": cell,
                "variant": variant,
                "seconds": round(time.monotonic() - started, 1),
                "trail": trail,
                **about,
            }
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
