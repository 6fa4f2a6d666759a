"""Look before searching: variants of ProUD on the development cells, with what happens inside.

Usage: python benchmarks/explore.py digits-dg --root DIR --cells syn:svhn --variants F.json --epochs 100 --out F.jsonl

Test accuracy and audited pseudo-label accuracy may guide choices on four development cells alone, so no other cell is
accepted here. The seed is none of the reported ones. Each variant is {"name", "method", ...settings}.
Variants with the same network share their pretraining.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from proud import ops
from proud.bench.plan import DEVELOPMENT
from proud.data.task import assemble
from proud.data.benchmarks import catalog_for
from proud.data.types import Task
from proud.training.evaluator import Evaluator, forward_all
from proud.methods import method_class, method_config
from proud.methods.base import Method
from proud.methods.context import make_context
from proud.methods.statistics import batch_statistics
from proud.nets.models import model_spec
from proud.methods.presets import preset
from proud.randomness import Randomness
from proud.training.fast import FastEpochs
from proud.training.loop import plain_epoch
from proud.training.run import environment

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
    """The task with fewer labeled images: the rarest class is `rarest` times as common as the commonest one."""
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


def run_stage_epoch(method: Method, stage: Any, epoch: int, random: Randomness, runner: Any) -> dict[str, Tensor]:
    random.begin_epoch(stage.name, epoch)
    method.begin_epoch(stage, epoch, random)
    rows = {
        name: random.rows(name, population, stage.steps, method.config.batch_size).to(method.context.device)
        for name, population in stage.pools.items()
    }
    return runner(method, stage, rows, random, lambda step: None)


def begin(method: Method, pretrained: dict[str, Tensor]) -> None:
    """At the end of a pretraining, momentum included, whichever variant it was run for."""
    own = method.state_dict()
    method.load_state_dict({name: pretrained.get(name, value).clone() for name, value in own.items()})
    weights = method.net.state_dict()
    for net in method.modules().values():  # averages and the like start as the network
        if set(net.state_dict()) == set(weights):
            net.load_state_dict(weights)


def look(method: Method, evaluator: Evaluator) -> dict[str, Any]:
    """Accuracies, and the geometry of the features."""
    net, context = method.network(), method.context
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
        domain["largest"] = round(logits.argmax(1).bincount().max().item() / len(some), 3)  # near 1: one class for all
        found = method.pseudo_labels().get(name)
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


def dump(method: Method, evaluator: Evaluator, path: Path) -> None:
    """Features, logits and true labels after pretraining, with running and with the domain's own batch statistics."""
    if path.exists():
        return
    context, found = method.context, {}
    for t, name in enumerate(context.unlabeled_names):
        start, size = context.unlabeled.starts[t], context.unlabeled.sizes[t]
        rows = torch.arange(start, start + size, device=context.device)
        found[f"{name}.truth"] = evaluator.data.audits[name].labels
        for own in (False, True):
            parts, random = [], Randomness(SEED, context.device)
            random.begin_epoch("dump", t)
            for some in rows.split(256):
                with batch_statistics(method.net, own), torch.no_grad(), method.autocast():
                    uniform = random.uniform("dump", len(some), 9)
                    parts.append(method.net(method.view(context.unlabeled.take(some), uniform)))
            kind = "own" if own else "running"
            for what, values in zip(("features", "logits"), zip(*parts, strict=True), strict=True):
                found[f"{name}.{kind}.{what}"] = torch.cat(values).half().cpu()
            if not any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in method.net.modules()):
                break
    found["labeled.labels"] = context.labels.cpu()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in found.items()}, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=DEVELOPMENT_CELLS)
    parser.add_argument("--root", required=True)
    parser.add_argument("--cells", required=True)
    parser.add_argument("--variants", type=Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--weights", default="none")
    parser.add_argument("--size", type=int, default=0, help="pixels, other than the data set's own: for quick looks")
    parser.add_argument("--rarest", type=float, default=0, help="thin out classes of the labeled domain, as 0.1")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dump", type=Path, help="folder for features and logits after pretraining")
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
            raise SystemExit(f"{cell} is not a development cell: looking at its test accuracy would be choosing by it")
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
            pretrain, stage = method.stages()
            config = method.config
            # what has an effect on pretraining; what is off is as if it were not there
            later = {"epochs", *method.MAIN_ONLY}
            key = str(sorted((name, value) for name, value in asdict(config).items() if value and name not in later))
            if key not in pretrained:
                for epoch in range(pretrain.epochs):
                    run_stage_epoch(method, pretrain, epoch, random, runner)
                pretrained[key] = {name: value.clone() for name, value in method.state_dict().items()}
            begin(method, pretrained[key])
            trail = [{"epoch": 0, **look(method, evaluator)}]
            if arguments.dump:
                dump(method, evaluator, arguments.dump / f"{cell.replace(':', '-')}-{len(pretrained)}.safetensors")
            for epoch in range(min(arguments.epochs, stage.epochs)):
                losses = run_stage_epoch(method, stage, epoch, random, runner)
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
