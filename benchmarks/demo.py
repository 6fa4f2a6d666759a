"""The gain of `proud demo` over source-only training, from its two runs.

Usage: proud demo --out DIR && python benchmarks/demo.py DIR --out benchmarks/results/demo.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from table_text import this_command

from proud.cli.demo import METHODS
from proud.files import write_json

SIGNALS = ("accuracy", "certain", "lambda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    found = {}
    for name in METHODS:
        result, run = (json.loads((arguments.folder / name / f"{file}.json").read_text()) for file in ("result", "run"))
        sites = {
            key: {site: {signal: signals[signal] for signal in SIGNALS} for site, signals in result[key].items()}
            for key in ("domains_first", "domains_last")
            if key in result
        }
        about = {key: run[key] for key in ("commit", "versions", "device")}
        found[name] = {"test_accuracy": result["test_accuracy"], **sites, "seed": run["config"]["seed"], **about}
    source_only, ours = (each["test_accuracy"] for each in found.values())
    write_json(arguments.out, {"gain": ours - source_only, "runs": found, "command": this_command()})


if __name__ == "__main__":
    main()
