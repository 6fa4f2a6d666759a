"""Does the diagnosis, which sees no label of a site, rank sites by how right their pseudo-labels are?

Usage: python benchmarks/diagnosis.py RUN_OR_BENCH... --data NAME --out benchmarks/results/diagnosis.json

Takes finished runs (or folders of a bench) whose audits know the true labels, and gives the rank correlation (Spearman)
of the score and of each signal with the accuracy of the pseudo-labels, all as means over the last five epochs. The
limits in `proud.trust.diagnosis` were chosen on the development cells; the other cells are told apart.
"""

from __future__ import annotations

import argparse
import sys
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr

from proud.training.files import write_json
from proud.training.folder import read_run
from proud.training.machine import environment
from proud.training.records import Records
from proud.trust.diagnosis import LAST_EPOCHS, LIMITS, diagnose

DEVELOPMENT_CELLS = ("syn:svhn", "svhn:mnist", "photo:sketch", "cartoon:sketch")
MOST_EXACT = 8  # sites; with more of them the usual approximation of p will do
SIGNALS = ("stability", "agreement", "class_shift", "prototype_shift", "uncertainty", "uncertain", "certain", "lambda")


def find_runs(folders: list[Path]) -> list[Path]:
    found = {path.parent for folder in folders for path in folder.rglob("run.json")}
    return sorted(folder for folder in found if (folder / "result.json").is_file())


def observe(folder: Path) -> list[dict[str, Any]]:
    """One row per site."""
    about, records = read_run(folder), Records(folder / "records.jsonl").read()
    config, rows = about["config"], []
    for site in diagnose(records):
        told = [record["domains"][site.name] for record in records if site.name in record.get("domains", {})]
        right = [row["accuracy"] for row in told[-LAST_EPOCHS:] if "accuracy" in row]
        if not right:
            continue
        rows.append(
            {
                "cell": f"{config['labeled']}:{config['test']}",
                "method": config["method"],
                "seed": config["seed"],
                "site": site.name,
                "development": f"{config['labeled']}:{config['test']}" in DEVELOPMENT_CELLS,
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
            found[name] = round(float(spearmanr([row["signals"][name] for row in rows], truth)[0]), 3)
    return found


def exact_p(scores: list[float], truth: list[float]) -> float:
    """The share of all orders of the sites whose rank correlation is at least as strong, either way."""
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


def asked(description: str | None) -> tuple[argparse.Namespace, list[Path]]:
    """What the command line says, and the folders of the runs it names."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="what the data is, in words")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    return arguments, find_runs(arguments.runs)


def main() -> None:
    arguments, folders = asked(__doc__)
    rows = [row for folder in folders for row in observe(folder)]
    first = read_run(folders[0])
    parts = {
        "all": rows,
        "development": [row for row in rows if row["development"]],
        "others": [row for row in rows if not row["development"]],
    }
    result = {
        "data": arguments.data,
        "images": {name: domain["images"] for name, domain in first["task"]["domains"].items()},
        "size": first["task"]["size"],
        "settings": first["config"]["method_config"],
        "limits": {"good": LIMITS.good, "harmful": LIMITS.harmful},
        "spearman": {name: correlations(part) for name, part in parts.items()},
        "verdicts": {name: by_verdict(part) for name, part in parts.items()},
        "sites": rows,
        "command": "python " + " ".join(sys.argv),
        "device_of_runs": first["device"],
        **environment(torch.device("cpu")),
    }
    write_json(arguments.out, result)
    for name, found in result["spearman"].items():
        print(name, found, result["verdicts"][name])


if __name__ == "__main__":
    main()
