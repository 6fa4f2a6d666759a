"""Fit the estimate of a site's pseudo-label accuracy, and test it on sites that were left out of the fit.

Usage: python benchmarks/site_accuracy.py RESULTS... --data NAME [--model src/proud/trust/site_accuracy.json]
           --out benchmarks/results/site_accuracy.json

RESULTS are results.jsonl files of full-size runs, and site_runs.json of small ones (`benchmarks/site_runs.py`), on data
with known true labels. A group is all sites of runs with one labeled domain of one data set. Runs named trial-* and
embedded-* are only for testing. With --model the coefficients are written, too; no other data may be used to fit them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Hashable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from table_text import this_command

from proud.files import write_json
from proud.machine import environment
from proud.trust.diagnosis import LIMITS, verdict_of
from proud.trust.site_accuracy import KINDS, Estimate, Regression, feature, kind_of, logit

LEVEL = 0.9
RIDGE = 0.01
DEVELOPED_ON = ("pacs", "digits-dg")
SIGNALS = ("stability", "agreement", "class_shift", "uncertain")
Site = dict[str, Any]


# ---- the sites


def read_sites(path: Path) -> list[Site]:
    """Of every run in a file: results.jsonl of a bench (its last epoch), or site_runs.json."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return [row for run in json.loads(text)["runs"] for row in small(run)]
    return [row for line in text.splitlines() for row in full_size(json.loads(line))]


def full_size(run: dict[str, Any]) -> list[Site]:
    about = {"data": run["bench"], "size": "full", "run": ""}
    return [
        about | site(run, name, signals, signals["accuracy"])
        for name, signals in run.get("domains_last", {}).items()
        if "accuracy" in signals
    ]


def small(run: dict[str, Any]) -> list[Site]:
    data = {"digits": "digits-dg"}.get(run["data"], run["data"])
    about = {"data": data, "size": "small", "run": run["run"]}
    return [about | site(run, name, signals, run["accuracy"][name]) for name, signals in run["signals"].items()]


def site(run: dict[str, Any], name: str, signals: dict[str, float], accuracy: float) -> Site:
    wanted = {key: round(value, 4) for key, value in signals.items() if key in SIGNALS}
    found = {key: run[key] for key in ("labeled", "test", "method", "seed")}
    return found | {"site": name, "images": run["images"][name], "accuracy": round(accuracy, 4), "signals": wanted}


# ---- the fit


def fit(sites: list[Site], features: tuple[str, ...], half_width: float = 0.0) -> Regression:
    """Ridge regression of the log odds of the accuracy."""
    values = np.array([[feature(name, each["signals"][name]) for name in features] for each in sites])
    target = np.array([logit(each["accuracy"]) for each in sites])
    means, scales = values.mean(0), values.std(0) + 1e-9
    inputs = (values - means) / scales
    bias = target.mean()
    penalty = RIDGE * len(sites) * np.eye(len(features))
    weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ (target - bias))
    numbers = ([round(float(number), 5) for number in row] for row in (means, scales, weights))
    return Regression(features, *map(tuple, numbers), bias=round(float(bias), 5), half_width=half_width)


def group_of(each: Site) -> Hashable:
    return each["data"], each["labeled"]


def left_out(
    sites: list[Site], features: tuple[str, ...], key: Callable[[Site], Hashable], nested: bool
) -> list[Estimate]:
    """Estimates of each site by a fit without its group; with intervals if `nested`."""
    found: dict[int, Estimate] = {}
    for group in dict.fromkeys(map(key, sites)):
        rest = [each for each in sites if key(each) != group]
        model = fitted(rest, features) if nested else fit(rest, features)
        found |= {row: model(each["signals"]) for row, each in enumerate(sites) if key(each) == group}
    return [found[row] for row in range(len(sites))]


def fitted(sites: list[Site], features: tuple[str, ...]) -> Regression:
    """With the half width that holds for 90 % of the sites whose group is left out, of full-size and of small runs."""
    errors: dict[str, list[float]] = {}
    for guess, each in zip(left_out(sites, features, group_of, nested=False), sites, strict=True):
        errors.setdefault(each["size"], []).append(abs(guess.accuracy - each["accuracy"]))
    return fit(sites, features, round(max(map(quantile, errors.values())), 4))


def quantile(errors: list[float]) -> float:
    rank = min(math.ceil((len(errors) + 1) * LEVEL), len(errors))
    return sorted(errors)[rank - 1]


def usable(sites: list[Site], kind: str) -> list[Site]:
    """The sites of a kind; a single epoch is imitated by the last one of a longer run."""
    return [each for each in sites if kind_of(each["signals"]) == {"first": "renewed"}.get(kind, kind)]


# ---- the test


def tested(sites: list[Site], estimates: list[Estimate], kind: str) -> list[Site]:
    rows = []
    for each, found in zip(sites, estimates, strict=True):
        shown = {key: round(value, 4) for key, value in asdict(found).items()}
        shown = {"estimate": shown["accuracy"], "low": shown["low"], "high": shown["high"]}
        rows.append(each | shown | {"kind": kind, "verdict": verdict_of(found)})
    return rows


def summary(rows: list[Site]) -> dict[str, Any]:
    """Mean absolute error, how often the interval holds, and the true accuracies behind each verdict."""
    if not rows:
        return {"sites": 0}
    found: dict[str, Any] = {
        "sites": len(rows),
        "mean_error": round(fmean(abs(row["estimate"] - row["accuracy"]) for row in rows), 4),
        "holds": round(fmean(row["low"] <= row["accuracy"] <= row["high"] for row in rows), 4),
        "width": round(fmean(row["high"] - row["low"] for row in rows), 4),
        "verdicts": {},
    }
    for verdict in ("sound", "cannot tell", "poor"):
        right = [row["accuracy"] for row in rows if row["verdict"] == verdict]
        if right:
            numbers = {"sites": len(right), "lowest": min(right), "mean": round(fmean(right), 4), "highest": max(right)}
            numbers["kept"] = sum(share >= LIMITS.sound for share in right)
            found["verdicts"][verdict] = numbers
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="description of the data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    sites = [row for path in arguments.sources for row in read_sites(path)]
    mine = [each for each in sites if each["data"] in DEVELOPED_ON]
    other = [each for each in sites if each["data"] not in DEVELOPED_ON]
    regressions, by_labeled, by_data, elsewhere = {}, [], [], []
    for kind, features in KINDS.items():
        part, rest = usable(mine, kind), usable(other, kind)
        regressions[kind] = fitted(part, features)
        if kind == "first":
            continue  # the same sites once more
        by_labeled += tested(part, left_out(part, features, group_of, nested=True), kind)
        by_data += tested(part, left_out(part, features, lambda each: each["data"], nested=True), kind)
        elsewhere += tested(rest, [regressions[kind](each["signals"]) for each in rest], kind)
    small_ones = [row for row in by_labeled if row["size"] == "small"]
    parts = {
        "labeled domain left out": by_labeled,
        "labeled domain left out, full-size runs": [row for row in by_labeled if row["size"] == "full"],
        "labeled domain left out, small runs": small_ones,
        "labeled domain left out, EID": [row for row in by_labeled if row["kind"] == "rounds"],
        "whole data set left out": by_data,
        "never used: the trial": [row for row in elsewhere if row["data"] == "trial"],
        "never used: the trial, without EID": [
            row for row in elsewhere if row["data"] == "trial" and row["kind"] == "renewed"
        ],
        "never used: the built-in set": [row for row in elsewhere if row["data"] == "embedded"],
    }
    about = {"command": this_command(), **environment(torch.device("cpu"))}
    result = {
        "data": arguments.data,
        "limits": {"sound": LIMITS.sound, "poor": LIMITS.poor},
        "level": LEVEL,
        "regressions": {kind: asdict(found) for kind, found in regressions.items()},
        "tests": {name: summary(rows) for name, rows in parts.items() if rows},
        "sites": by_labeled + elsewhere,
        **about,
    }
    write_json(arguments.out, result)
    if arguments.model:
        counts = {kind: len(usable(mine, kind)) for kind in KINDS}
        write_json(
            arguments.model, {"data": arguments.data, "sites": counts, "regressions": result["regressions"], **about}
        )
    for name, found in result["tests"].items():
        print(name, found)


if __name__ == "__main__":
    main()
