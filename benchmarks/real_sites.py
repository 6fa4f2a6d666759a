"""What happened at each site, from the folders of finished runs: confusion, calibration, coverage, verdicts.

Usage: python benchmarks/real_sites.py RUN_OR_BENCH... --data NAME --out benchmarks/results/NAME-runs.json

Confusion, calibration and coverage are those of the saved network on the unseen site; accuracies are means over the
last epochs, as in result.json. The verdicts on the unlabeled sites stand beside the true accuracy of the pseudo-labels,
for `benchmarks/real_sites_tables.py`. Nothing is chosen by these numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from runs_of import find_runs
from table_text import this_command

from proud.files import write_json
from proud.machine import environment
from proud.model.format import read_result, read_verdicts
from proud.model.load import load_model
from proud.report.sources import RunSource, read_metadata
from proud.trust.fitted import measure

COVERAGE, RISK = 0.9, 0.05


def described(folder: Path) -> dict[str, Any]:
    """One run; sites without pseudo-labels or true labels are left out."""
    run = RunSource(folder, read_metadata(folder), folder.name)
    result: dict[str, Any] = dict(read_result(folder) or {})
    last = result.get("domains_last", {})
    config, outputs = run.config, run.outputs
    found: dict[str, Any] = {"labeled": config.labeled, "test": config.test, "method": config.method}
    found |= {"seed": config.seed, "model": run.metadata["model"]["name"], "preset": config.preset}
    found |= {"classes": run.classes, "images": {name: domain["images"] for name, domain in run.domains.items()}}
    found |= {key: result[key] for key in ("test_accuracy", "test_recall", "test_scores") if key in result}
    if "test/labels" in outputs:
        logits, labels = (torch.from_numpy(outputs[f"test/{part}"]) for part in ("logits", "labels"))
        pairs = labels * len(run.classes) + logits.argmax(1)
        found["confusion"] = pairs.bincount(minlength=len(run.classes) ** 2).view(-1, len(run.classes)).tolist()
        trust = load_model(folder, "cpu").trust
        if trust is not None:
            found["trust"] = measure(trust, logits, labels, COVERAGE, RISK) | {"validation_images": trust.images}
    found["sites"] = [
        {"name": site["name"], "verdict": site["verdict"], "estimate": site.get("estimate")}
        | {"accuracy": last[site["name"]]["accuracy"]}
        for site in read_verdicts(folder)
        if "accuracy" in last.get(site["name"], {})
    ]
    return found | {key: run.metadata.get(key) for key in ("commit", "code", "device")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="name of the data")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    runs = [described(folder) for folder in find_runs(arguments.runs)]
    about = {"coverage": COVERAGE, "risk": RISK, "command": this_command(), **environment(torch.device("cpu"))}
    write_json(arguments.out, {"data": arguments.data, "runs": runs, **about})


if __name__ == "__main__":
    main()
