"""Ways to pseudo-label, compared on the features of a pretrained network that `explore.py --dump` kept.

Usage: python benchmarks/labelers.py CELL-N.safetensors:TAU … --commit C --out benchmarks/results/explore/labelers.json

Development cells alone. TAU is the data set's temperature, C the commit that made the dumps (their own record). One
augmented view per image. `certain` is the share whose ratio is above λ* = 0.35.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from explore import DEVELOPMENT_CELLS
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import normalize

from proud import ops
from proud.files import write_json
from proud.machine import environment

CELLS = {cell.replace(":", "-"): cell for cells in DEVELOPMENT_CELLS.values() for cell in cells}
# centred, temperature times, weight of the classifier, balance
WAYS = [(False, 1, 0.0, 0.0), (True, 1, 0.0, 0.0), (True, 1, 1.0, 0.5), (True, 2, 0.5, 0.25), (True, 4, 0.5, 0.25)]
WAYS += [(False, 1, 0.5, 0.0), (False, 1, 0.5, 0.5)]


def look(features: Tensor, logits: Tensor, truth: Tensor, tau: float, prior: Tensor, way: tuple) -> dict[str, Any]:
    centred, times, classifier, balance = way
    unit = normalize(features, dim=1)
    unit = normalize(unit - unit.mean(0), dim=1) if centred else unit
    probs = logits.softmax(1)[None]
    found = ops.dapp(unit[None], probs, times * tau)
    labels, uncertainty = found.labels, found.uncertainty
    if classifier or balance:
        distances = ops.cosine_distance(unit, found.prototypes)[None]
        chosen: dict[str, Any] = {"classifier": classifier, "balance": balance, "prior": prior}
        labels, uncertainty, _ = ops.consensus(distances, probs, times * tau, found.present, **chosen)
    certain, right = ops.certainty_ratio(uncertainty, 0.5) > 0.35, labels == truth
    settings = {"center": centred, "temperature": times, "classifier": classifier, "balance": balance}
    shares = {"right": right, "certain": certain} | ({"certain_right": right[certain]} if certain.any() else {})
    return settings | {name: round(100 * share.float().mean().item(), 1) for name, share in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dumps", nargs="+")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for dump in arguments.dumps:
        path, _, tau = dump.rpartition(":")
        cell, kept = CELLS[Path(path).stem.rpartition("-")[0]], load_file(path)
        share = torch.bincount(kept["labeled.labels"]).float()
        for name in (key.removesuffix(".truth") for key in kept if key.endswith(".truth")):
            truth = kept[f"{name}.truth"]
            for kind in ("running", "own"):
                if f"{name}.{kind}.features" in kept:
                    features, logits = (kept[f"{name}.{kind}.{what}"].float() for what in ("features", "logits"))
                    alone = round(100 * (logits.argmax(1) == truth).float().mean().item(), 1)
                    where = {"cell": cell, "domain": name, "statistics": kind, "classifier_alone": alone}
                    ways = (look(features, logits, truth, float(tau), share / share.sum(), way) for way in WAYS)
                    rows += [where | way for way in ways]
    about = {"command": "python benchmarks/labelers.py", **environment(torch.device("cpu"))}
    write_json(arguments.out, about | {"features_from_commit": arguments.commit, "seed": 7, "rows": rows})


if __name__ == "__main__":
    main()
