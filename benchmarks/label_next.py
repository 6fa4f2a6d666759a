"""The value of k labels per site: the same run with and without the labels that `proud label-next` suggests.

Usage: python benchmarks/label_next.py RUN... --work DIR --out benchmarks/results/label_next.json --data NAME [--k 20]

Every RUN is a finished run without added labels, on data whose true labels are known. The table of `proud label-next`
is filled in with them; `random` labels as many random images, for comparison. Pseudo-label accuracy is measured on the
other images only. Nothing is selected by these numbers.
"""

from __future__ import annotations

import argparse
import csv
import random
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from table_text import this_command

from proud.config import Options, ReadSpec, RunConfig
from proud.files import write_json, write_table
from proud.machine import choose_device, environment
from proud.methods import method_config
from proud.model.format import read_run
from proud.model.label_next import COLUMNS, run_task, suggest
from proud.model.load import load_model
from proud.training.records import epochs_of
from proud.training.run import train


def fill_in(folder: Path, k: int, table: Path, choice: str) -> dict[str, int]:
    """Write the table with true labels; returns the number of wrong guesses per site, for `chosen`."""
    task = run_task(load_model(folder, "cpu"), folder, "", "", ReadSpec())
    truth = {
        (name, path): task.training.classes[label]
        for name, audit in task.evaluation.audits.items()
        for path, label in zip(audit.paths, audit.labels.tolist(), strict=True)
    }
    if choice == "random":
        draw = random.Random(0)
        by_site = {name: draw.sample(sorted(audit.paths), k) for name, audit in task.evaluation.audits.items()}
        rows = [[path, name, truth[name, path], "", "", ""] for name, paths in by_site.items() for path in paths]
        write_table(table, COLUMNS, rows)
        return {}
    suggest(folder, table, k=k, overwrite=True, device="cpu")
    with table.open(encoding="utf-8", newline="") as file:
        asked = list(csv.DictReader(file))
    for row in asked:
        row["label"] = truth[row["domain"], row["path"]]
    write_table(table, COLUMNS, [[row[column] for column in COLUMNS] for row in asked])
    sites = dict.fromkeys(row["domain"] for row in asked)
    return {site: sum(row["domain"] == site and row["label"] != row["guess"] for row in asked) for site in sites}


def scores(folder: Path) -> dict[str, Any]:
    """Means over the last five epochs."""
    records = epochs_of(folder).read()[-5:]
    found: dict[str, Any] = {
        key: round(100 * fmean(record[key] for record in records if key in record), 2)
        for key in ("val_accuracy", "test_accuracy")
    }
    sites = records[-1]["domains"]
    for key in ("accuracy", "uncertainty"):
        scale = 100 if key == "accuracy" else 1
        found[f"pseudo_label_{key}"] = {
            site: round(scale * fmean(record["domains"][site][key] for record in records), 3) for site in sites
        }
    return found


def repeat(folder: Path, table: Path, out: Path, device: str) -> None:
    """The run in `folder` again, with the table's labels."""
    config = read_run(folder)["config"]
    names = {field.name for field in fields(RunConfig)}
    run = RunConfig(**{key: value for key, value in config.items() if key in names})
    run = replace(run, unlabeled=tuple(config["unlabeled"]), labels=str(table))
    settings = method_config(run.method, **config["method_config"])
    options = Options(out=str(out), device=device, threads=1, quiet=True, eval_every=1000, resume=True)
    train(run, settings, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--choices", nargs="+", default=["chosen"], choices=["chosen", "random"])
    parser.add_argument("--data", required=True, help="description of the data")
    parser.add_argument("--device", default="cpu", help="that of the runs")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for folder in arguments.runs:
        config = read_run(folder)["config"]
        about = {key: config[key] for key in ("labeled", "test", "method", "seed")}
        rows.append(about | {"labels": "none"} | scores(folder))
        for choice in arguments.choices:
            table = arguments.work / f"{folder.name}-{choice}.csv"
            wrong = fill_in(folder, arguments.k, table, choice)
            repeat(folder, table, arguments.work / f"{folder.name}-{choice}", arguments.device)
            found = scores(arguments.work / f"{folder.name}-{choice}")
            rows.append(about | {"labels": choice, "wrong_guesses": wrong} | found)
            print(rows[-1], flush=True)
    run = read_run(arguments.runs[0])
    write_json(
        arguments.out,
        {
            "data": arguments.data,
            "k": arguments.k,
            "images": {name: domain["images"] for name, domain in run["task"]["domains"].items()},
            "size": run["task"]["size"],
            "settings": run["config"]["method_config"],
            "rows": rows,
            "command": this_command(),
            **environment(choose_device(arguments.device)),
        },
    )


if __name__ == "__main__":
    main()
