"""Does `proud compare` name the better of two models, and does its interval hold? On sites whose labels are known.

Usage: python benchmarks/compare.py RUN_A,RUN_B... --out benchmarks/results/compare.json --data-name TEXT

Of each pair of runs with the same test domain, 1,000 samples of 50 images are drawn as `proud compare` draws its one,
and labeled with the true classes. `holds`: share of the 95 % intervals that contain the true difference of accuracy on
the site; `named`: share of the draws that name the better model; `wrong`: those that name the other one.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from site_images import about, load_site
from table_text import this_command
from torch import Tensor

from proud.files import write_json
from proud.machine import choose_device, choose_threads, environment
from proud.model.compare import MOST_LABELS
from proud.model.predict import Model
from proud.trust.calibration import probabilities
from proud.trust.comparison import difference_interval, draw_sample, make_strata
from proud.trust.intervals import Interval

DRAWS = 1000


def calibrated(model: Model, images: Tensor) -> np.ndarray:
    return probabilities(model.logits(images), model.trust.temperature if model.trust else 1.0).numpy()


def simulate(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Probabilities [N,K] of two models, true classes [N]."""
    a, b = first.argmax(1), second.argmax(1)
    apart = (a != b).nonzero()[0]
    mean = ((first + second) / 2)[apart]
    line = np.arange(len(apart))
    strata = make_strata(mean[line, a[apart]] - mean[line, b[apart]], line)
    wins, losses = (a == labels)[apart], (b == labels)[apart]
    truth = float((a == labels).mean() - (b == labels).mean())
    count = min(MOST_LABELS, len(apart))

    @cache
    def interval(won: int, lost: int) -> Interval:
        return difference_interval(won, lost, count, len(apart), len(labels))

    found = []
    for seed in range(DRAWS):
        rows = draw_sample(strata, count, seed)
        found.append(interval(int(wins[rows].sum()), int(losses[rows].sum())))
    better = [each.low > 0 if truth > 0 else each.high < 0 for each in found]
    worse = [each.high < 0 if truth > 0 else each.low > 0 for each in found]
    return {
        "images": len(labels),
        "disagreements": len(apart),
        "labels": count,
        "difference": round(100 * truth, 2),
        "mean_estimate": round(100 * fmean(each.value for each in found), 2),
        "mean_width": round(100 * fmean(each.high - each.low for each in found), 2),
        "holds": fmean(each.low <= truth <= each.high for each in found),
        "named": fmean(better),
        "wrong": fmean(worse),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pairs", nargs="+", metavar="RUN_A,RUN_B")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-name", required=True, help="description of the data")
    parser.add_argument("--data", default="", help="if not that of the runs")
    parser.add_argument("--root", default="")
    parser.add_argument("--most", type=int, default=0, help="images of a site")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    choose_threads(1, 1)
    rows = []
    for pair in arguments.pairs:
        parts = [
            load_site(Path(folder), arguments.device, arguments.data, arguments.root, arguments.most)
            for folder in pair.split(",")
        ]
        (one, images, labels), (other, others, same) = parts
        assert torch.equal(labels, same), f"{pair}: the test domains differ"
        found = simulate(calibrated(one, images), calibrated(other, others), labels.numpy())
        rows.append({"first": about(one), "second": about(other)} | found)
        print(rows[-1], flush=True)
    result = {"data": arguments.data_name, "draws": DRAWS, "rows": rows, "command": this_command()}
    write_json(arguments.out, result | environment(choose_device(arguments.device)))


if __name__ == "__main__":
    main()
