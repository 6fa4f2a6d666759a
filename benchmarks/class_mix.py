"""When to expect classes alike: `class_mix` of proud-plus where classes are rare in one domain, or in all of them.

Usage: python benchmarks/class_mix.py ROOT --data NAME --out benchmarks/results/class_mix.json

ROOT holds Digits-DG. Development cells alone, small runs that fit a CPU. The rarest class is a tenth as common as the
commonest one: in the labeled domain only, or in every domain alike, the unseen one included.
"""

from __future__ import annotations

import argparse
import hashlib
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from table_text import this_command

from proud import ProUD
from proud.bench.plan import DEVELOPMENT
from proud.files import write_json
from proud.machine import environment

RARE_IN = ("the labeled domain", "all domains")
CLASS_MIXES = ("labeled", "even")
DOMAINS = ("mnist", "mnist_m", "svhn", "syn")
RAREST = 0.1
COMMONEST = 200  # images of the commonest class of a domain to train on
TESTED = 3  # times as many are measured on
SETTINGS: dict[str, Any] = {"size": 16, "batch_size": 32, "pretrain_epochs": 120, "epochs": 8, "lr": 0.03}
SETTINGS |= {"weight_decay": 0.0005, "method": "proud-plus", "model": "digits", "weights": "none", "device": "cpu"}


@cache
def counts(thinned: bool, seed: int) -> list[int]:
    """Images per class: as many in all, thinned or not. Which classes are rare is drawn by the seed."""
    order = np.random.default_rng(seed).permutation(10)
    shares = RAREST ** (order / 9)
    return [round(COMMONEST * share) for share in (shares if thinned else np.full(10, shares.mean()))]


def images(root: Path, domain: str, thinned: bool, seed: int, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    found, labels = [], []
    for digit, count in enumerate(counts(thinned, seed)):
        files = (path for split in ("train", "val") for path in (root / domain / split / str(digit)).iterdir())
        chosen = sorted(files, key=lambda path: hashlib.sha256(path.name.encode()).digest())[: times * count]
        found += [np.asarray(Image.open(path).convert("RGB")) for path in chosen]
        labels += [digit] * len(chosen)
    return np.stack(found), np.array(labels)


def run(root: Path, cell: tuple[str, str], rare_in: str, class_mix: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    everywhere = rare_in == "all domains"
    labeled, test = cell
    domains = {
        name: images(root, name, name == labeled or everywhere, seed, TESTED if name == test else 1) for name in DOMAINS
    }
    unlabeled = [found for name, (found, _) in domains.items() if name not in cell]
    model = ProUD(seed=seed, class_mix=class_mix, **SETTINGS).fit(domains[labeled], unlabeled)
    pictures, truth = domains[test]
    right = np.asarray(model.predict(pictures)) == truth
    recalls = [right[truth == digit].mean() for digit in range(10)]
    return {
        "labeled": labeled,
        "test": test,
        "rare_in": rare_in,
        "class_mix": class_mix,
        "seed": seed,
        "accuracy": round(100 * float(right.mean()), 2),
        "mean_recall": round(100 * float(np.mean(recalls)), 2),
        "images": {name: len(found) for name, (found, _) in domains.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path)
    parser.add_argument("--data", required=True, help="what the data is, in words")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    jobs = list(product(arguments.seeds, sorted(DEVELOPMENT["digits-dg"]), RARE_IN, CLASS_MIXES))
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        started = [pool.submit(run, arguments.root, cell, where, mix, seed) for seed, cell, where, mix in jobs]
        rows = []
        for each in started:
            rows.append(each.result())
            print(rows[-1], flush=True)
    about = {"data": arguments.data, "rarest": RAREST, "settings": SETTINGS, "rows": rows}
    write_json(arguments.out, about | {"command": this_command()} | environment(torch.device("cpu")))


if __name__ == "__main__":
    main()
