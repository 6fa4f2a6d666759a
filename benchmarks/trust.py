"""Calibration, coverage and abstention on source validation and on the unseen domain, from the outputs of runs.

Usage: python benchmarks/trust.py RUN_OR_BENCH... --data NAME --out benchmarks/results/trust.json

Everything is fitted on source validation, as at the end of training. The source numbers are therefore slightly
optimistic; those on the unseen domain are unbiased.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from runs_of import find_runs
from safetensors.torch import load_file
from table_text import this_command
from trust_tables import trust_table

from proud.files import write_json
from proud.machine import environment
from proud.model.format import read_run
from proud.trust.fitted import fit_trust, measure

COVERAGE, RISK = 0.9, 0.2


def observe(folder: Path) -> dict[str, Any] | None:
    about, outputs = read_run(folder), load_file(folder / "outputs.safetensors")
    if "val/labels" not in outputs or "test/labels" not in outputs:
        return None
    trust = fit_trust(outputs["val/logits"], outputs["val/labels"])
    config = about["config"]
    row: dict[str, Any] = {key: config[key] for key in ("labeled", "test", "method", "seed")}
    if config["method_config"].get("alpha") == 0:
        row["method"] += " without PML"
    row |= {"temperature": round(trust.temperature, 3), "validation_images": trust.images, "commit": about["commit"]}
    for part, name in (("val", "source"), ("test", "unseen")):
        for score in ("lac", "aps"):
            found = measure(
                trust,
                outputs[f"{part}/logits"],
                outputs[f"{part}/labels"],
                COVERAGE,
                RISK,
                score,  # type: ignore[arg-type]
            )
            rounded = {key: None if value is None else round(value, 4) for key, value in found.items()}
            if score == "lac":
                row[name] = rounded
            else:
                row[name] |= {"aps_coverage": rounded["coverage"], "aps_set_size": rounded["set_size"]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", required=True, help="description of the data")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    folders = find_runs(arguments.runs)
    first = read_run(folders[0])
    result = {
        "data": arguments.data,
        "images": {name: domain["images"] for name, domain in first["task"]["domains"].items()},
        "size": first["task"]["size"],
        "settings": first["config"]["method_config"],
        "coverage": COVERAGE,
        "risk": RISK,
        "rows": [row for folder in folders if (row := observe(folder)) is not None],
        "command": this_command(),
        "device_of_runs": first["device"],
        **environment(torch.device("cpu")),
    }
    write_json(arguments.out, result)
    print(trust_table(result, arguments.out.name))


if __name__ == "__main__":
    main()
