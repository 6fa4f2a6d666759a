"""Small runs whose site verdicts are compared with the truth: short training, 120 to 200 images a site, on a CPU.

Usage: python benchmarks/site_runs.py DATA WORK --weights FILE [--only NAMES] [--out FILE.json]

DATA holds pacs/images/<domain>/<class>/* and digits_dg/<domain>/train/<class>/*. Every run is one `proud train` in
WORK/runs; finished ones are skipped. With --out FILE.json all finished runs are described: settings, and the
signals of its sites with their true accuracy, for `benchmarks/site_accuracy.py`. The runs of the trial (four sites with
the names of hospitals) and of the built-in set are only for testing.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from runs_of import find_runs
from table_text import this_command

from proud.cli import main as cli
from proud.files import write_json
from proud.machine import environment
from proud.model.format import read_result, read_run
from proud.training.records import epochs_of
from proud.trust.diagnosis import recent_signals

METHODS = ("proud-plus", "proud", "eid")
PACS = ("art_painting", "cartoon", "photo", "sketch")
DIGITS = ("mnist", "mnist_m", "svhn", "syn")
EMBEDDED = ("pen", "texture", "print", "street")
TRIAL = {"photo": "central", "art_painting": "north", "cartoon": "south", "sketch": "west"}


class SmallRun(NamedTuple):
    name: str
    part: str  # pacs, digits_dg, embedded or trial
    images: int  # per site
    draw: int  # which of the domain's images
    flags: tuple[str, ...]


def plan() -> Iterator[SmallRun]:
    """Lengths of training and sizes of sites vary, so that good and bad pseudo-labels both occur."""
    for number, (labeled, test) in enumerate(permutations(range(4), 2)):
        seed, kind = 100 + number, number % 3
        for method in (METHODS[kind], METHODS[(number + 1) % 3]):
            common = ("--method", method, "--seed", str(seed), "--batch-size", "32", "--threads", "1", "--val", "0.25")
            small = ("--pretrain-epochs", ("30", "60", "15")[kind], "--epochs", ("6", "4", "8")[kind])
            ends = ("--labeled", DIGITS[labeled], "--test", DIGITS[test], "--size", "16", "--model", "digits")
            flags = (*ends, *common, *small, "--lr", "0.03")
            yield SmallRun(f"digits-{number}-{method}", "digits_dg", (200, 120)[number % 2], seed, flags)
            ends = ("--labeled", PACS[labeled], "--test", PACS[test])
            if method == METHODS[kind]:
                large = ("--pretrain-epochs", ("8", "4", "12")[kind], "--epochs", ("5", "4", "3")[kind])
                flags = (*ends, "--size", "64", "--model", "resnet18.tv_in1k", *common, *large)
                yield SmallRun(f"pacs-{number}-{method}", "pacs", 120, seed, flags)
            elif number % 2:
                flags = (*ends, "--size", "32", "--model", "digits", *common, *small, "--lr", "0.03")
                yield SmallRun(f"pacs-digits-{number}-{method}", "pacs", 120, seed, flags)
            elif number % 4 == 0:
                ends = ("--labeled", EMBEDDED[labeled], "--test", EMBEDDED[test])
                yield SmallRun(f"embedded-{number}-{method}", "embedded", 0, 0, (*ends, *common, *small))
    for seed in (1, 2):
        for method in METHODS:
            flags = ("--labeled", "central", "--test", "west", "--method", method, "--seed", str(seed))
            flags += ("--size", "64", "--model", "resnet18.tv_in1k", "--batch-size", "32", "--threads", "1")
            flags += ("--epochs", "5", "--pretrain-epochs", "8", "--val", "0.25")
            yield SmallRun(f"trial-{method}-{seed}", "trial", 120, 0, flags)


def sites(data: Path, work: Path, run: SmallRun) -> str:
    """A folder with the run's images, or `embedded`; images are drawn by the hash of their paths."""
    if run.part == "embedded":
        return "embedded"
    root, source = work / "sites" / f"{run.part}-{run.images}-{run.draw}", data / "digits_dg"
    names = {name: name for name in DIGITS}
    if run.part != "digits_dg":
        source, names = data / "pacs" / "images", TRIAL if run.part == "trial" else {name: name for name in PACS}
    for domain, name in names.items():
        place = source / domain / ("train" if run.part == "digits_dg" else "")
        files = sorted(place.glob("*/*"), key=lambda path: digest(run.draw, path.relative_to(place)))
        for path in files[: run.images]:
            copy = root / name / path.relative_to(place)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists():
                shutil.copyfile(path, copy)
    return str(root)


def digest(draw: int, path: Path) -> bytes:
    return hashlib.sha256(f"{draw}/{path.as_posix()}".encode()).digest()


def described(folder: Path) -> dict[str, Any]:
    """What was run, and what is known about each site."""
    about, result = read_run(folder), read_result(folder) or {}
    records, task = epochs_of(folder).read(), about["task"]
    config = about["config"]
    sites = [name for name, domain in task["domains"].items() if domain["role"] == "unlabeled"]
    found: dict[str, Any] = {"run": folder.name, "data": folder.name.partition("-")[0]}
    found |= {key: config[key] for key in ("labeled", "test", "method", "seed")}
    found |= {"classes": len(task["classes"]), "size": task["size"], "model": about["model"]["name"]}
    found |= {"epochs": [config["method_config"][key] for key in ("pretrain_epochs", "epochs")]}
    found["images"] = {name: domain["images"] for name, domain in task["domains"].items()}
    found["signals"] = {name: recent_signals(records, name) for name in sites}
    found["accuracy"] = {name: records[-1]["domains"][name]["accuracy"] for name in sites}
    keys = ("val_accuracy", "val_interval", "test_accuracy", "test_interval", "warnings")
    found |= {key: result[key] for key in keys if key in result}
    return found | {key: about.get(key) for key in ("commit", "code", "versions", "device", "threads")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--weights", default="auto", help="of the ResNet-18 for PACS")
    parser.add_argument("--only", default="", help="beginning of the names of the runs to make")
    parser.add_argument("--out", type=Path, help="results file of all finished runs")
    arguments = parser.parse_args()
    for run in plan():
        out = arguments.work / "runs" / run.name
        if (out / "result.json").is_file() or not run.name.startswith(f"{arguments.only}-" if arguments.only else ""):
            continue
        command = ["train", "--data", sites(arguments.data, arguments.work, run), *run.flags, "--device", "cpu"]
        command += ["--quiet", "--out", str(out), "--overwrite", "--eval-every", "1000"]
        command += ["--weights", arguments.weights] if "resnet18.tv_in1k" in run.flags else []
        log = out.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file, redirect_stdout(file), redirect_stderr(file):
            code = cli.run(command)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        print(run.name, "done" if code == 0 else f"failed ({code}): {log}", flush=True)
    if arguments.out:
        runs = [described(folder) for folder in find_runs([arguments.work / "runs"])]
        write_json(arguments.out, {"runs": runs, "command": this_command(), **environment(torch.device("cpu"))})


if __name__ == "__main__":
    main()
