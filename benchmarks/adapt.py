"""Adapting to the unseen site without training, beside two published methods, for finished runs.

Usage: python benchmarks/adapt.py RUN... --out benchmarks/results/adapt.json --data-name TEXT [--data D --root DIR]

Every RUN has a test domain. Its images are classified each alone (plain), with the batch statistics of the batch
(`statistics`), by T3A (Iwasawa and Matsuo 2021), and as by `proud predict --adapt`; in batches of 16, 64 and 256, all
together, and all of a skewed site (classes from 1 to 1 : 10, three draws). Labels are used for counting alone.
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
from proud.model.adapt import BATCH, SAMPLE, aligned, combine, site_network
from proud.model.predict import Model
from proud.nets.batch_norm import has_batch_norm, may_use_site_statistics
from proud.nets.forward import forward_all

BATCHES = (16, 64, 256)
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
        if has_batch_norm(self.model.net):
            found["statistics"] = self.forward(self.model.net, rows, min(len(rows), BATCH))[1]
        if may_use_site_statistics(self.model.net):
            sample = self.images[rows[:: -(-len(rows) // SAMPLE)]]
            features, logits = self.forward(site_network(self.model, sample), rows)
        return found | {"adapt": combine(self.model, aligned(self.model, features).half(), logits)}

    def forward(self, net: Any, rows: Tensor, batch_statistics: int = 0) -> tuple[Tensor, Tensor]:
        model = self.model
        found = forward_all(net, self.images[rows], model.spec, model.device, "fp32", batch_statistics)
        return found[0].cpu(), found[1].cpu()

    def accuracies(self, parts: list[Tensor]) -> dict[str, float]:
        """Percent, over all images of the parts."""
        right: dict[str, list[Tensor]] = {}
        for rows in parts:
            for name, logits in self.answers(rows).items():
                right.setdefault(name, []).append(logits.argmax(1) == self.labels[rows])
        return {name: round(100 * torch.cat(found).float().mean().item(), 2) for name, found in right.items()}

    def balanced(self) -> dict[str, float]:
        """Percent, of all images together: the mean of the recalls of the classes."""
        answers = self.answers(torch.arange(len(self.labels)))
        found = {}
        for name, logits in answers.items():
            right = (logits.argmax(1) == self.labels).double()
            found[name] = round(100 * fmean(right[self.labels == k].mean().item() for k in self.labels.unique()), 2)
        return found


def measure(site: Site) -> dict[str, Any]:
    order = torch.randperm(len(site.labels), generator=torch.Generator().manual_seed(1))
    found: dict[str, Any] = {"images": len(order)}
    for size in BATCHES:
        parts = [rows for rows in order.split(size) if len(rows) == size]
        found[str(size)] = site.accuracies(parts) if parts else None
    found["whole"], found["balanced"] = site.accuracies([order]), site.balanced()
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
