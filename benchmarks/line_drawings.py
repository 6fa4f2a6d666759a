"""Do line drawings lead from photographs to sketches? A linear classifier on ImageNet features, before any training.

Usage: python benchmarks/line_drawings.py --root DIR --weights FILE --out benchmarks/results/explore/line_drawings.json

The development cells of PACS alone. Ridge regression on one-hot labels, on the features of labeled images as they are,
as line drawings, and both; accuracy in % on the unseen domain and, for their audits, on the unlabeled ones.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import torch
from explore import DEVELOPMENT_CELLS, SEED
from torch import Tensor

from proud import ops
from proud.data.task import assemble
from proud.data.benchmarks import catalog_for
from proud.nets.models import ModelSpec, Net, build_net, model_spec
from proud.files import write_json
from proud.machine import environment

RIDGE = 30.0


def some(images: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))[:count]
    return ops.to_unit(ops.center_crop(images[rows], 224)), labels[rows]


def features_of(net: Net, pixels: Tensor, spec: ModelSpec) -> Tensor:
    with torch.inference_mode():
        parts = [net.features(ops.normalize(part, spec.mean, spec.std)) for part in pixels.split(100)]
    return torch.cat(parts).clone()


def fitted(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Means, and weights with a bias as their last row."""
    mean = features.mean(0)
    inputs = torch.nn.functional.pad(features - mean, (0, 1), value=1.0)
    targets = torch.nn.functional.one_hot(labels, classes).float()
    return mean, torch.linalg.solve(inputs.T @ inputs + RIDGE * torch.eye(inputs.shape[1]), inputs.T @ targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=int, default=600, help="per domain")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    catalog, cache, rows = catalog_for("pacs", arguments.root), {}, []
    for cell in DEVELOPMENT_CELLS["pacs"]:
        labeled, test = cell.split(":")
        task = assemble(catalog, labeled=labeled, test=test, size=224, seed=SEED, cache=cache)
        spec = model_spec("resnet18.tv_in1k", len(task.training.classes), 224)
        net = build_net(spec, arguments.weights).eval()

        images, labels = some(task.training.labeled.images, task.training.labeled.labels, arguments.images)
        sparse = 2 * torch.rand(len(images), generator=torch.Generator().manual_seed(SEED))
        drawn = ops.outline(images, sparse).expand_as(images)
        plain, lines = (features_of(net, pixels, spec) for pixels in (images, drawn))
        unseen = task.evaluation.test
        assert unseen is not None
        audits = {
            domain.name: (domain.images, task.evaluation.audits[domain.name].labels)
            for domain in task.training.unlabeled
        }
        others = {test: (unseen.images, unseen.labels), **audits}
        seen = {name: some(*pair, arguments.images) for name, pair in others.items()}
        known = {name: (features_of(net, pixels, spec), truth) for name, (pixels, truth) in seen.items()}
        ways = {"as they are": [plain], "line drawings": [lines], "both": [plain, lines]}
        for way, parts in ways.items():
            mean, weights = fitted(torch.cat(parts), labels.repeat(len(parts)), len(task.training.classes))
            row: dict[str, object] = {"cell": cell, "learned from": way}
            for name, (given, truth) in known.items():
                guess = (torch.nn.functional.pad(given - mean, (0, 1), value=1.0) @ weights).argmax(1)
                row[name] = round(100 * (guess == truth).float().mean().item(), 1)
            rows.append(row)
            print(row, flush=True)
    words = ["python", "benchmarks/line_drawings.py", "--root", "ROOT", "--weights", Path(arguments.weights).name]
    about = {"images": arguments.images, "seed": SEED, "command": shlex.join(words)}
    write_json(arguments.out, {"rows": rows, **about, **environment(torch.device("cpu"))})


if __name__ == "__main__":
    main()
