"""What 120 labeled images promise about new images of the same domain, by validation images and by cross-validation.

Usage: python benchmarks/few_labels.py DIGITS_DG --draws 10 --out benchmarks/results/few_labels.json

Each draw of labeled images trains a small network (source-only) with `--val 0.1 --folds 5`; the same saved network is
calibrated on its 12 validation images, and on all 120 out of their folds. Both are measured on 1000 other images.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from table_text import this_command

from proud import ProUD
from proud.files import write_json
from proud.machine import environment
from proud.trust.fitted import fit_trust, measure
from proud.trust.selective import DELTA

SETTINGS: dict[str, Any] = {
    "method": "erm", "model": "digits", "size": 16, "batch_size": 32, "lr": 0.03, "weight_decay": 0.0005,
    "pretrain_epochs": 30, "epochs": 2, "flip": False, "val": 0.1, "folds": 5, "device": "cpu", "threads": 1,
}  # fmt: skip
LABELED, NEW = 120, 1000
COVERAGE, RISKS = 0.9, (0.05, 0.1, 0.2)


def read(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    images = [np.asarray(Image.open(path).convert("RGB")) for path in files]
    return np.stack(images), np.array([path.parent.name for path in files])


def draw(root: Path, domain: str, seed: int) -> list[dict[str, Any]]:
    """Rows of both ways to calibrate."""
    files = sorted((root / domain / "train").glob("*/*.png"))
    chosen = np.random.default_rng(seed).permutation(len(files))[: 2 * LABELED + NEW]
    images, labels = read([files[row] for row in chosen])
    new_images, new_labels = images[2 * LABELED :], labels[2 * LABELED :]
    with tempfile.TemporaryDirectory() as folder:
        model = ProUD(**SETTINGS, seed=seed, out=f"{folder}/run", verbose=False)
        model.fit(labeled=(images[:LABELED], labels[:LABELED]), unlabeled=[images[LABELED : 2 * LABELED]])
        outputs = load_file(Path(folder, "run", "outputs.safetensors"))
    pieces = [pixels for _, pixels in model.model_.read_pieces(list(new_images), False)]
    logits = model.model_.logits(torch.cat(pieces))
    numbers = torch.tensor([model.model_.classes.index(label) for label in new_labels])
    rows = []
    for key, folds in (("val", 0), ("folds", SETTINGS["folds"])):
        trust = fit_trust(outputs[f"{key}/logits"], outputs[f"{key}/labels"], folds)
        found = measure(trust, logits, numbers, COVERAGE)
        row = {"domain": domain, "seed": seed, "calibrated_on": key, "images": trust.images}
        row |= {name: found[name] for name in ("accuracy", "ece_before", "ece_after", "coverage", "set_size")}
        for risk in RISKS:
            answers = measure(trust, logits, numbers, COVERAGE, risk)
            row[f"risk {risk:g}"] = {"answered": answers["answered"], "wrong": answers["risk"]}
        rows.append(row)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"draws": len(rows), "images": fmean(row["images"] for row in rows)}
    for name in ("accuracy", "ece_before", "ece_after", "coverage", "set_size"):
        found[name] = round(fmean(row[name] for row in rows), 4)
    for risk in RISKS:
        parts = [row[f"risk {risk:g}"] for row in rows]
        broken = [part["wrong"] is not None and part["wrong"] > risk for part in parts]
        found[f"risk {risk:g}"] = {
            "usable": round(fmean(part["answered"] > 0 for part in parts), 4),
            "answered": round(fmean(part["answered"] for part in parts), 4),
            "broken": round(fmean(broken), 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--domains", nargs="+", default=["mnist", "mnist_m"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for domain in arguments.domains:
        for seed in range(arguments.draws):
            rows += draw(arguments.root, domain, seed)
            print(domain, seed, flush=True)
    parts = {
        f"{domain}, {kind}": summary([row for row in rows if (row["domain"], row["calibrated_on"]) == (domain, kind)])
        for domain in arguments.domains
        for kind in ("val", "folds")
    }
    result = {"data": "Digits-DG (rebuilt)", "labeled": LABELED, "new": NEW, "coverage": COVERAGE, "delta": DELTA}
    result |= {"settings": SETTINGS, "summary": parts, "rows": rows, "command": this_command()}
    write_json(arguments.out, result | environment(torch.device("cpu")))
    for name, found in parts.items():
        print(name, found)


if __name__ == "__main__":
    main()
