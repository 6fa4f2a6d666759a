"""Fill the tables of README and docs from results files: `python benchmarks/docs_tables.py [--check]`.

The function NAME writes the block between `<!-- table: NAME -->` and `<!-- end -->`; no number in it is typed by hand.
With --check nothing is written, and an outdated block is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from accuracy_tables import averages, coverage, demo, measured, mixing, results, short, small
from data_tables import near_copies_table
from new_site_tables import (
    adapt_cells_table,
    adapt_table,
    compare_table,
    later_table,
    pool_table,
    time_table,
    variants_table,
)
from real_sites_tables import all_parts, status, targets_table
from recipe import few_table, labels_table, screen_table
from screens import screen
from soak_tables import (
    damage_table,
    faults_table,
    folders_table,
    fuzz_table,
    kills_table,
    large_data_table,
    planted_table,
    ranks_table,
    sizes_table,
)
from speed_tables import conventional, cpu_training, prediction, speed, speed_full, speed_line, step_profile, together
from table_text import ROOT, read, source, table, unless_missing
from trust_tables import few_labels_table, label_next_table, site_accuracy_table, trust_table
from tutorials import ON_REAL_DATA, TUTORIALS, page
from web_tables import report_text, web_table

from proud.methods import METHODS, method_class

BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def scalability() -> str:
    """Time and memory by the number of unlabeled domains."""
    found = read("scalability.json")
    rows = []
    unit = found["rows"][0]["run_s"]
    for name in ("proud", "eid"):
        mine = [row for row in found["rows"] if row["method"] == name]
        rows += [
            [
                name,
                str(row["domains"]),
                f"{row['run_s'] / unit:.2f}",
                f"{row['run_s'] / mine[0]['run_s']:.2f}",
                f"{row['state_bytes'] / 2**20:.1f}",
            ]
            for row in mine
        ]
    header = [
        "method",
        "unlabeled domains",
        "run time, relative to `proud` with 2",
        "relative to itself with 2",
        "networks and optimizers, MiB",
    ]
    return table(header, rows) + source("scalability.json", found)


def estimates() -> str:
    """The estimate at the start of training against what the run then took."""
    found = read("estimates.json")
    rows = []
    for run in found["runs"]:
        seconds, memory, disk = run["seconds"], run["memory"], run["disk"]
        rows.append(
            [
                f"{run['run']}, {run['settings']['method']}",
                f"{seconds['told_after']:.0f} s",
                f"{seconds['estimated']:.0f} s / {seconds['actual']:.0f} s",
                f"{memory['estimated'] / 1e9:.1f} GB / {memory['actual'] / 1e9:.1f} GB",
                f"{disk['estimated'] / 1e6:.0f} MB / {disk['actual'] / 1e6:.0f} MB",
            ]
        )
    header = ["run", "estimate after", "time, estimated / actual", "memory", "disk, at most / actual"]
    return table(header, rows) + source("estimates.json", found)


def nccl() -> str:
    """One process under torchrun with NCCL, and a run killed and resumed, both on a GPU."""
    found = read("nccl.json")
    killed = (
        f"steps as CUDA graphs, killed after {found['killed_after_epochs']} of {found['epochs']} epochs and resumed"
    )
    pairs = {
        "nccl_vs_alone": "one process under torchrun (NCCL) vs one without",
        "alone_vs_alone": "one process without torchrun, run twice",
        "resumed_vs_whole": f"{killed}, vs uninterrupted",
        "whole_vs_whole": "steps as CUDA graphs, uninterrupted, run twice",
    }
    rows = [[text, said(found[key])] for key, text in pairs.items() if key in found]
    return table(["on the GPU", "largest relative difference of epoch losses"], rows) + source("nccl.json", found)


def export() -> str:
    """Exported files against the saved model: answers, and speed on one core."""
    found = read("export.json")
    rows = []
    for row in found["rows"]:
        compared = "images" in row
        rows.append(
            [
                row["model"],
                row["format"],
                f"{row['images']:,}" if compared else "–",
                str(row["other_labels"]) if compared else "–",
                f"{row['largest_difference']:.0e}".replace("0e+00", "0") if compared else "–",
                f"{row['alone_per_s']:,.0f}",
                f"{row['batch_per_s']:,.0f}",
            ]
        )
    batch, versions = found["rows"][0]["batch"], found["versions"]
    header = ["model", "format", "images compared", "other labels", "largest difference of a probability"]
    header += ["images/s, one at a time", f"images/s, {batch} at a time"]
    words = f"\nPer second of CPU time, one thread; torch {versions['torch']}, onnxruntime {versions['onnxruntime']}.\n"
    return table(header, rows) + words + source("export.json", found)


def said(value: float | dict[str, float]) -> str:
    if isinstance(value, float):
        return f"{value:.1e}"
    return f"{value['all']:.1e} (first epoch {value['first']:.1e})"


def small_sizes() -> Any:
    sys.path.insert(0, str(ROOT / "tests" / "reliability"))
    import sizes

    return sizes


FAMILIES = list({method_class(name): name for name in reversed(METHODS)}.values())
"""the first name of each method"""

ADAPT_TIME = "python benchmarks/adapt_time.py RUN FOLDER --out FILE --data-name TEXT"
NEW_SITE = "python benchmarks/new_site.py {} DATA DIR --cells LABELED:TEST ... --out FILE --data-name TEXT"

TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "speed-line": speed_line,
    "speed-full": speed_full,
    "conventional": conventional,
    "step-profile": step_profile,
    "together": together,
    "prediction": prediction,
    "cpu-training": cpu_training,
    "nccl": nccl,
    "scalability": scalability,
    "estimates": estimates,
    "pacs": lambda: results("pacs"),
    "digits-dg": lambda: results("digits-dg"),
    "demo": demo,
    "short": short,
    "averages": averages,
    "coverage": coverage,
    "mixing": mixing,
    "small": small,
    **{f"measured-{name}": partial(measured, name) for name in FAMILIES},
    "trust": lambda: trust_table("trust.json", "trust-pacs.json"),
    "site-accuracy": lambda: site_accuracy_table(read("site_accuracy.json")),
    "few-labels": lambda: few_labels_table(read("few_labels.json")),
    "label-next": lambda: label_next_table(read("label_next.json")),
    "adapt-pacs": lambda: adapt_table("adapt-pacs.json", read("adapt-pacs.json")),
    "adapt-variants": lambda: variants_table("recipe/adapt.jsonl", read("recipe/adapt.jsonl")),
    "adapt-pacs-cells": lambda: adapt_cells_table("adapt-pacs.json", read("adapt-pacs.json")),
    "adapt-digits-cells": lambda: adapt_cells_table("adapt-digits.json", read("adapt-digits.json")),
    "adapt-digits": lambda: adapt_table("adapt-digits.json", read("adapt-digits.json")),
    "adapt-time": lambda: unless_missing("adapt-time.json", ADAPT_TIME, time_table),
    "compare": lambda: compare_table(read("compare.json")),
    "new-site": lambda: unless_missing("new_site.json", NEW_SITE.format("add"), later_table),
    "pool": lambda: unless_missing("pool.json", NEW_SITE.format("pool"), pool_table),
    "soak-kills": lambda: kills_table(read("soak.json")),
    "soak-damage": lambda: damage_table(read("soak.json")),
    "soak-faults": lambda: faults_table(read("soak.json")),
    "soak-fuzz": lambda: fuzz_table(read("soak.json")),
    "soak-folders": lambda: folders_table(read("soak.json")),
    "planted": lambda: planted_table(read("planted.json")),
    "soak-sizes": lambda: sizes_table(read("soak.json"), small_sizes()),
    "export": export,
    "ranks": lambda: ranks_table(read("ranks.json")),
    "large-data": lambda: large_data_table(read("large_data.json")),
    **{f"tutorial-{name.replace('_', '-')}": partial(page, name) for name in (*TUTORIALS, *ON_REAL_DATA)},
    "near-copies": lambda: near_copies_table(read("near_copies.json")),
    **{f"screen-{number}": partial(screen, number) for number in range(1, 6)},
    "real-sites": all_parts,
    "real-status": status,
    "real-targets": targets_table,
    "recipe-screen": screen_table,
    "recipe-labels": labels_table,
    "recipe-few": few_table,
    "web": lambda: web_table(read("web.json")),
    "report-time": lambda: report_text(read("report.json")),
}


def fill(text: str) -> str:
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> None:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        before = path.read_text(encoding="utf-8")
        after = fill(before)
        if before != after:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(after, encoding="utf-8")
    print("out of date:" if "--check" in sys.argv else "written:", ", ".join(stale) or "nothing")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
