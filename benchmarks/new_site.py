"""A site that comes later, and sites without names: what both cost in accuracy, and save in time.

Usage: python benchmarks/new_site.py add|pool DATA WORK --cells LABELED:TEST... --out FILE --data-name TEXT [-- FLAGS]

DATA is a folder of domains; FLAGS are those of `proud train`. For every cell:
add: a model of all unlabeled sites but the last; from it, with --add, one that learns from the last too; and one that
learns from all of them from nothing. Accuracies on the test domain, and seconds of training.
pool: true sites, sites found in their union (--unlabeled-pool), and the union as one site.
Finished runs in WORK are not repeated. Nothing is selected by these numbers.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from table_text import this_command

from proud.data.benchmarks import open_catalog
from proud.files import write_json
from proud.machine import choose_device, environment
from proud.model.format import read_run

Row = dict[str, Any]


def train(out: Path, flags: list[str]) -> Row:
    """One `proud train`, unless it is finished; its accuracy in percent, and the seconds of its epochs."""
    command = [sys.executable, "-m", "proud", "train", "--out", str(out), "--quiet", *flags]
    if not (out / "result.json").is_file():
        subprocess.run([*command, "--resume"] if (out / "run.json").is_file() else command, check=True)
    laps = map(json.loads, (out / "timings.jsonl").read_text(encoding="utf-8").splitlines())
    seconds = sum(lap.get(part, 0.0) for lap in laps for part in ("begin", "steps"))
    accuracy = json.loads((out / "result.json").read_text(encoding="utf-8"))["test_accuracy"]
    return {"accuracy": round(100 * accuracy, 2), "seconds": round(seconds, 1)}


def sites_of(data: Path, labeled: str, test: str) -> list[str]:
    return [name for name in open_catalog(str(data)).domains if name not in (labeled, test)]


def added(data: Path, work: Path, cell: str, flags: list[str]) -> Row:
    labeled, test = cell.split(":")
    *first, last = sites_of(data, labeled, test)
    ends = ["--data", str(data), "--labeled", labeled, "--test", test]
    name = f"{labeled}-{test}"
    few = train(work / f"{name}-few", [*ends, "--unlabeled", *first, *flags])
    every = train(work / f"{name}-all", [*ends, "--unlabeled", *first, last, *flags])
    short = quarter(flags)
    later = train(work / f"{name}-later", ["--from", str(work / f"{name}-few"), "--add", last, *short])
    return {"cell": cell, "added": last, "without": few, "from_nothing": every, "from_model": later}


def quarter(flags: list[str]) -> list[str]:
    """A run that starts from a model has a quarter of the epochs of `FLAGS`, no pretraining and no other weights."""
    found, place = list(flags), flags.index("--epochs") if "--epochs" in flags else -1
    if place >= 0:
        found[place + 1] = str(-(-int(flags[place + 1]) // 4))
    for name in ("--pretrain-epochs", "--weights"):
        if name in found:
            place = found.index(name)
            del found[place : place + 2]
    return found


def pooled(data: Path, work: Path, cell: str, flags: list[str]) -> Row:
    labeled, test = cell.split(":")
    name, sites = f"{labeled}-{test}", sites_of(data, labeled, test)
    ends = ["--data", str(data), "--labeled", labeled, "--test", test]
    row: Row = {"cell": cell, "sites": sites, "true": train(work / f"{name}-true", [*ends, *flags])}
    alone, pool = work / f"{name}-data", work / f"{name}-pool"
    for place, names in ((alone, [labeled, test]), (pool, sites)):
        for site in names:
            copy_links(data / site, place / site)
    ends[1] = str(alone)
    for kind, number in (("found", "auto"), ("one", "1")):
        out = work / f"{name}-{kind}"
        row[kind] = train(out, [*ends, "--unlabeled-pool", str(pool), "--sites", number, *flags])
        row[kind] |= {"sites": read_run(out)["task"].get("pool", {}).get("sites")}
    return row | {"purity": purity(work / f"{name}-found", sites)}


def copy_links(source: Path, target: Path) -> None:
    """The same files under other folders, without copies."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                os.link(path, place)


def purity(run: Path, sites: list[str]) -> float | None:
    """Share of the pool's images whose found site is mostly of their true one."""
    path = run / "pseudo_labels.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = Counter((row["domain"], next(name for name in sites if f"/{name}/" in row["path"])) for row in rows)
    groups = {group for group, _ in pairs}
    return round(sum(max(pairs[group, name] for name in sites) for group in groups) / sum(pairs.values()), 4)


def main() -> None:
    flags = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["add", "pool"])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cells", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-name", required=True, help="description of the data")
    arguments = parser.parse_args(sys.argv[1 : len(sys.argv) - len(flags) - bool("--" in sys.argv)])
    arguments.work.mkdir(parents=True, exist_ok=True)
    measure = added if arguments.what == "add" else pooled
    rows = []
    for cell in arguments.cells:
        rows.append(measure(arguments.data.resolve(), arguments.work.resolve(), cell, flags))
        print(rows[-1], flush=True)
    result = {"data": arguments.data_name, "flags": flags, "rows": rows, "command": this_command()}
    write_json(arguments.out, result | environment(choose_device("auto")))


if __name__ == "__main__":
    main()
