"""Does the label-free diagnosis rank sites by the accuracy of their pseudo-labels?

Usage: python benchmarks/diagnosis.py RUNS_OR_RESULTS... --data NAME --out benchmarks/results/diagnosis.json

Takes finished runs, folders of them (means over the last five epochs) or results.jsonl files (the last epoch), on data
with known true labels, and computes Spearman's rank correlation of the score and of each signal with the pseudo-label
accuracy. The limits in `proud.trust.diagnosis` were chosen on the development cells of Digits-DG; other cells are
reported separately.
"""

from __future__ import annotations

import argparse
import json
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from table_text import this_command

from proud.bench.plan import DEVELOPMENT
from proud.files import write_json
from proud.machine import environment
from proud.model.format import read_run
from proud.training.records import epochs_of
from proud.trust.diagnosis import LAST_EPOCHS, LIMITS, diagnose

MOST_EXACT = 8  # sites; with more, the usual approximation of p is used
SIGNALS = ("stability", "agreement", "class_shift", "prototype_shift", "uncertainty", "uncertain", "certain", "lambda")


def find_runs(folders: list[Path]) -> list[Path]:
    found = {path.parent for folder in folders for path in folder.rglob("run.json")}
    return sorted(folder for folder in found if (folder / "result.json").is_file())


def observe(folder: Path) -> list[dict[str, Any]]:
    """One row per site of a run."""
    about, records = read_run(folder), epochs_of(folder).read()
    data = about["config"]["data"] if about["config"]["data"] in DEVELOPMENT else ""
    return sites(about["config"] | {"commit": about.get("commit"), "bench": data}, records)


def results(path: Path) -> list[dict[str, Any]]:
    """One row per site of every run in a results file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for line in lines for row in sites(line, [{"domains": line.get("domains_last", {})}])]


def sites(about: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows, cell = [], (about["labeled"], about["test"])
    for site in diagnose(records):
        told = [record["domains"][site.name] for record in records if site.name in record.get("domains", {})]
        right = [row["accuracy"] for row in told[-LAST_EPOCHS:] if "accuracy" in row]
        if not right:
            continue
        rows.append(
            {
                "data": about["bench"],
                "cell": ":".join(cell),
                "method": about["method"],
                "seed": about["seed"],
                "site": site.name,
                "development": any(cell in cells for cells in DEVELOPMENT.values()),
                "accuracy": round(fmean(right), 4),
                "score": round(site.score, 4),
                "verdict": site.verdict,
                "signals": {key: round(value, 4) for key, value in site.signals.items()},
                "commit": about.get("commit"),
            }
        )
    return rows


def correlations(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Spearman's rho with the accuracy; its p value for the score."""
    if len(rows) < 3:
        return {"sites": len(rows)}
    truth = [row["accuracy"] for row in rows]
    whole = spearmanr([row["score"] for row in rows], truth)
    p = exact_p([row["score"] for row in rows], truth) if len(rows) <= MOST_EXACT else float(whole[1])
    found: dict[str, Any] = {"sites": len(rows), "score": round(float(whole[0]), 3), "p": float(f"{p:.2g}")}
    for name in SIGNALS:
        if all(name in row["signals"] for row in rows):
            values = [row["signals"][name] for row in rows]
            if len(set(values)) > 1:
                found[name] = round(float(spearmanr(values, truth)[0]), 3)
    return found


def exact_p(scores: list[float], truth: list[float]) -> float:
    """Two-sided permutation p value of the rank correlation."""
    a, b = rankdata(scores), rankdata(truth)
    a, b = a - a.mean(), b - b.mean()
    found = abs(np.array(list(permutations(a))) @ b)
    return float((found >= abs(a @ b) - 1e-9).mean())


def by_verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for verdict in ("sound", "doubtful", "harmful"):
        right = [row["accuracy"] for row in rows if row["verdict"] == verdict]
        if right:
            found[verdict] = {
                "sites": len(right),
                "lowest": min(right),
                "mean": round(fmean(right), 4),
                "highest": max(right),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="description of the data")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    files = [path for path in arguments.sources if path.is_file()]
    rows = [row for path in files for row in results(path)]
    rows += [
        row for folder in find_runs([path for path in arguments.sources if path.is_dir()]) for row in observe(folder)
    ]
    parts = {"all": rows, "development cells": [row for row in rows if row["development"]]}
    parts["other cells"] = [row for row in rows if not row["development"]]
    for kind in dict.fromkeys((row["data"], row["method"]) for row in rows):
        parts[", ".join(filter(None, kind))] = [row for row in rows if (row["data"], row["method"]) == kind]
    result = {
        "data": arguments.data,
        "limits": {"good": LIMITS.good, "harmful": LIMITS.harmful},
        "spearman": {name: correlations(part) for name, part in parts.items()},
        "verdicts": {name: by_verdict(part) for name, part in parts.items()},
        "sites": rows,
        "command": this_command(),
        **environment(torch.device("cpu")),
    }
    write_json(arguments.out, result)
    for name, found in result["spearman"].items():
        print(name, found, result["verdicts"][name])


if __name__ == "__main__":
    main()
