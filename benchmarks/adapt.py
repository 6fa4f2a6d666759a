"""Adapting to the unseen site without training, beside two published methods, for finished runs.

Usage: python benchmarks/adapt.py RUN... --out benchmarks/results/adapt.json --data-name TEXT [--data D --root DIR]

Every RUN has a test domain. Its images are classified each alone (plain), with the batch statistics of the batch
(`statistics`), by T3A (Iwasawa and Matsuo 2021), as by `proud predict --adapt`, and so with batch statistics
(`both`); in batches of 16, 64 and 256, all together, and all of a skewed site (classes from 1 to 1 : 10, three draws).
Labels are used for counting alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from site_images import about, load_site, skewed
from table_text import this_command
from torch import Tensor

from proud import ops
from proud.files import write_json
from proud.machine import choose_device, choose_threads, environment
from proud.model.adapt import together, unit_features
from proud.model.predict import Model
from proud.nets.batch_norm import has_batch_norm
from proud.nets.forward import forward_all

BATCHES = (16, 64, 256)
BATCH = 128  # images that share batch statistics
T3A_KEPT = 100
SKEW, DRAWS = 10.0, 3


class Site:
    """All methods on any rows of a site; what does not depend on the rows is computed once."""

    def __init__(self, model: Model, images: Tensor, labels: Tensor) -> None:
        self.model, self.images, self.labels = model, images, labels
        self.features, self.logits = model.outputs(images)

    def answers(self, rows: Tensor) -> dict[str, Tensor]:
        features, logits = self.features[rows], self.logits[rows]
        weight = self.model.net.head.weight.detach().cpu()
        found = {"plain": logits, "t3a": ops.t3a(features, logits, weight, T3A_KEPT)}
        found["adapt"] = self.adapted(features, logits)
        if has_batch_norm(self.model.net):
            features, found["statistics"] = self.with_batch_statistics(rows)
            found["both"] = self.adapted(features, found["statistics"])
        return found

    def adapted(self, features: Tensor, logits: Tensor) -> Tensor:
        return together(self.model, unit_features(features), logits)

    def with_batch_statistics(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits with the statistics of the images themselves."""
        model, size = self.model, min(len(rows), BATCH)
        features, logits = forward_all(model.net, self.images[rows], model.spec, model.device, "fp32", size)
        return features.cpu(), logits.cpu()

    def right(self, parts: list[Tensor]) -> dict[str, Tensor]:
        """Whether each image of the parts is classified correctly, by method."""
        found: dict[str, list[Tensor]] = {}
        for rows in parts:
            for name, logits in self.answers(rows).items():
                found.setdefault(name, []).append(logits.argmax(1) == self.labels[rows])
        return {name: torch.cat(each) for name, each in found.items()}

    def accuracies(self, parts: list[Tensor]) -> dict[str, float]:
        return {name: percent(right) for name, right in self.right(parts).items()}


def percent(right: Tensor) -> float:
    return round(100 * right.double().mean().item(), 2)


def measure(site: Site) -> dict[str, Any]:
    order = torch.randperm(len(site.labels), generator=torch.Generator().manual_seed(1))
    found: dict[str, Any] = {"images": len(order)}
    for size in BATCHES:
        parts = [rows for rows in order.split(size) if len(rows) == size]
        found[str(size)] = site.accuracies(parts) if parts else None
    together, labels = site.right([order]), site.labels[order]
    found["whole"] = {name: percent(right) for name, right in together.items()}
    found["balanced"] = {
        name: round(fmean(percent(right[labels == k]) for k in labels.unique()), 2) for name, right in together.items()
    }
    draws = [site.accuracies([skewed(site.labels, SKEW, seed)]) for seed in range(DRAWS)]
    found["skewed"] = {name: round(fmean(draw[name] for draw in draws), 2) for name in draws[0]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-name", required=True, help="description of the data")
    parser.add_argument("--data", default="", help="if not that of the runs")
    parser.add_argument("--root", default="")
    parser.add_argument("--most", type=int, default=0, help="images of a site")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    choose_threads(arguments.threads, 1)
    rows = []
    for folder in arguments.runs:
        model, images, labels = load_site(folder, arguments.device, arguments.data, arguments.root, arguments.most)
        rows.append(about(model) | measure(Site(model, images, labels)))
        print(rows[-1], flush=True)
    result = {"data": arguments.data_name, "t3a_kept": T3A_KEPT, "skew": SKEW, "rows": rows}
    result |= {"command": this_command(), **environment(choose_device(arguments.device))}
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
