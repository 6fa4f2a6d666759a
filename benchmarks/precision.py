"""bf16 against fp32: the same runs in both precisions, test accuracies side by side.

Usage: python benchmarks/precision.py --root DIR --combo mnist_m:mnist --seeds 11,12,13 --epochs 100 --out FILE.json
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean

import torch

from proud.config import Options, RunConfig
from proud.methods import method_config
from proud.methods.presets import preset
from proud.files import write_json
from proud.training.run import environment, load_task, train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--combo", default="mnist_m:mnist")
    parser.add_argument("--seeds", default="11,12,13")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--pretrain-epochs", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    labeled, test = arguments.combo.split(":")
    settings = preset("digits-dg") | {"epochs": arguments.epochs, "pretrain_epochs": arguments.pretrain_epochs}
    found: dict[str, list[float]] = {"bf16": [], "fp32": []}
    start: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        first = RunConfig(data="digits-dg", root=arguments.root, labeled=labeled, test=test)
        task, _ = load_task(first)
        for seed in map(int, arguments.seeds.split(",")):
            for precision in found:
                run = RunConfig(**{**vars(first), "seed": seed, "precision": precision})
                options = Options(out=f"{folder}/{precision}-{seed}", eval_every=1000, quiet=True)
                result = train(run, method_config("proud", **settings), options, task=task)
                found[precision].append(100 * result["test_accuracy"])
                start = {name: 100 * row["accuracy"] for name, row in result["domains_first"].items()}
                print(precision, seed, found[precision][-1], flush=True)
    means = {precision: fmean(values) for precision, values in found.items()}
    about = environment(torch.device("cuda")) | {"command": f"benchmarks/precision.py --combo {arguments.combo}"}
    rows = {"accuracy": found, "means": means, "difference": means["bf16"] - means["fp32"], "settings": settings}
    write_json(arguments.out, rows | {"first_pseudo_labels": start} | about)


if __name__ == "__main__":
    main()
