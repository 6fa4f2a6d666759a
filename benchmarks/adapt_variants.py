"""Variants of `proud predict --adapt` on development cells: which features, which images, and what decides.

Usage: python benchmarks/adapt_variants.py NAME RUN... --root DIR --most N --out benchmarks/results/recipe/adapt.jsonl

NAME is digits-dg or pacs; every run adds a line to --out. It must be one of a development cell: test accuracy guides
the choice. The rule: the largest mean gain of `proud-plus`, over both data sets
and batches of 256, the whole site and a skewed one, among variants with no gain below -1.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from adapt import DRAWS, SKEW, T3A_KEPT
from site_images import about, load_site, skewed
from table_text import this_command
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from proud import ops
from proud.bench.plan import DEVELOPMENT
from proud.machine import choose_threads, environment
from proud.model.adapt import TAU
from proud.model.predict import Model


class Variant(NamedTuple):
    center: str  # the mean that is subtracted: of the site, of the sites of training, or none
    share: float  # of the images of a class build its prototype
    anchor: float  # images that a prototype of the model counts as
    rounds: int
    classifier: float  # weight of the classifier beside the prototypes


VARIANTS = [
    Variant(*each)
    for each in product(
        ("site", "training", "none"), (1 / 3, 2 / 3, 1.0), (1.0, 4.0, 16.0), (1, 2), (0.0, 1 / 3, 2 / 3)
    )
]
BATCH = 256


def classified(model: Model, features: Tensor, logits: Tensor, variant: Variant) -> Tensor:
    """Labels [N]."""
    stored = model.prototypes
    unit = normalize(features.float(), dim=1)
    if variant.center == "site":
        unit = normalize(unit - unit.mean(0), dim=1)
    elif variant.center == "training" and stored is not None:
        unit = normalize(unit - stored["center"], dim=1)
    own = model.net.head.weight.detach() if stored is None or variant.center == "none" else stored["merged"]
    tau = TAU if stored is None else float(stored["tau"])
    scores = logits
    for _ in range(variant.rounds):
        members = (one_hot(scores.argmax(1), logits.shape[1]) * ops.surest(scores, variant.share)[:, None]).float()
        prototypes = ops.anchored_prototypes(members.mT @ unit, members.sum(0), own, variant.anchor)
        scores = -ops.cosine_distance(unit, prototypes) / tau
    temperature = model.trust.temperature if model.trust else 1.0
    return torch.lerp(scores.softmax(1), (logits / temperature).softmax(1), variant.classifier).argmax(1)


def measure(model: Model, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """The gains of every variant, and of T3A, in points: in batches of 256, with the whole site and a skewed one."""
    features, logits = model.outputs(images)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    parts = [[rows for rows in order.split(BATCH) if len(rows) == BATCH], [order]]
    parts.append([skewed(labels, SKEW, seed) for seed in range(DRAWS)])

    def gains(classify: Any) -> list[float]:
        def gain(rows: Tensor) -> float:
            right = [found == labels[rows] for found in (classify(rows), logits[rows].argmax(1))]
            return 100 * (right[0].double().mean() - right[1].double().mean()).item()

        return [round(fmean(map(gain, each)), 2) for each in parts]

    weight = model.net.head.weight.detach()
    found = [
        gains(lambda rows, variant=variant: classified(model, features[rows], logits[rows], variant))
        for variant in VARIANTS
    ]
    t3a = gains(lambda rows: ops.t3a(features[rows], logits[rows], weight, T3A_KEPT).argmax(1))
    return {"variants": [variant._asdict() for variant in VARIANTS], "gains": found, "t3a": t3a}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=DEVELOPMENT)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--root", required=True)
    parser.add_argument("--most", type=int, default=0, help="images of a site")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    choose_threads(1, 1)
    environs = environment(torch.device("cpu")) | {"command": this_command()}
    for folder in arguments.runs:
        model, images, labels = load_site(folder, "cpu", arguments.name, arguments.root, arguments.most)
        run = about(model)
        if (run["labeled"], run["test"]) not in DEVELOPMENT[arguments.name]:
            raise SystemExit(f"{folder} is of no development cell: its test accuracy must not guide choices")
        row = {"data": arguments.name, **run, **measure(model, images, labels), **environs}
        with arguments.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(run, flush=True)


if __name__ == "__main__":
    main()
