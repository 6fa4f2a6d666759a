"""Fill the tables of README and docs from results files: `python benchmarks/docs_tables.py [--check]`.

A block between `<!-- table: NAME -->` and `<!-- end -->` is written anew by the function of that name; no number in it
is typed by hand. With --check nothing is written, and a block that is out of date ends in an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak_tables import faults_table, fuzz_table, kills_table, large_data_table, ranks_table, sizes_table
from trust_tables import diagnosis_table, label_next_table, trust_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str) -> Any:
    path = RESULTS / name
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def source(name: str, result: dict[str, Any]) -> str:
    return f"\n`benchmarks/results/{name}` · `{result['command']}` · commit {result['commit']} · {result['device']}\n"


def mark(value: float, bar: float, stretch: float | None) -> str:
    return "stretch met" if stretch is not None and value <= stretch else "met" if value <= bar else "**missed**"


def speed() -> str:
    """The speed bars, and what was measured."""
    digits, pacs = read("speed-digits.json"), read("speed-pacs.json")
    wanted: list[tuple[str, float, str, float, float | None]] = [
        ("Digits-DG, a whole step, 512 images", digits["fast"]["step_ms"], "ms", 1.0, 0.6),
        ("the plain loop, same step", digits["plain"]["step_ms"], "ms", 6.0, None),
        ("Digits-DG, DaPP, 9,600 images × 3 views", digits["fast"]["dapp_ms"], "ms", 15.0, 6.0),
        ("the Digits-DG table, 36 runs × 800 epochs", digits["table_minutes"], "min", 60.0, 25.0),
        ("PACS, a whole step, 512 images of 224 px", pacs["fast"]["step_ms"], "ms", 36.0, 28.0),
        ("PACS, DaPP, 3,947 images × 3 views", pacs["fast"]["dapp_ms"], "ms", 400.0, 250.0),
    ]
    rows = [
        [
            name,
            f"{value:.2f} {unit}",
            f"≤ {bar:g} {unit}",
            "–" if stretch is None else f"≤ {stretch:g} {unit}",
            mark(value, bar, stretch),
        ]
        for name, value, unit, bar, stretch in wanted
    ]
    ratio = f"\nFast against plain in one run: {digits['ratio']:.1f} times on Digits-DG, {pacs['ratio']:.2f} on PACS.\n"
    header = ["measure", "measured", "bar", "stretch", ""]
    return table(header, rows) + ratio + source("speed-digits.json", digits) + source("speed-pacs.json", pacs)


def explored(data: str) -> str:
    """Variants on the development cells: test accuracy over the main phase."""
    rows = []
    for run in read(f"explore/{data}.jsonl"):
        variant = run["variant"]
        settings = ", ".join(f"{key} {value}" for key, value in variant.items() if key not in ("name", "method"))
        trail = " → ".join(f"{point['test_accuracy']:.1f} ({point['epoch']})" for point in run["trail"])
        last = run["trail"][-1]
        labels = ", ".join(
            f"{name} {domain['pseudo']:.0f} / {domain['classifier']:.0f}"
            for name, domain in last.items()
            if isinstance(domain, dict) and "pseudo" in domain
        )
        rows.append([run["cell"], variant["method"], settings or "–", trail, labels, run["commit"][:7]])
    header = [
        "cell",
        "method",
        "settings",
        "test accuracy (epoch)",
        "pseudo-labels / classifier at the end, %",
        "commit",
    ]
    return (
        table(header, rows) + f"\n`benchmarks/results/explore/{data}.jsonl`, made by `benchmarks/explore.py`; seed 7.\n"
    )


def labelers() -> str:
    """Ways to pseudo-label right after pretraining."""
    found = read("explore/labelers.json")
    names = ("center", "temperature", "classifier", "balance")
    rows = [
        [
            f"{row['cell']} {row['domain']}",
            row["statistics"],
            f"{row['classifier_alone']:.1f}",
            *(("yes" if row[name] else "–") if name == "center" else f"{row[name]:g}" for name in names),
            f"{row['right']:.1f}",
            f"{row['certain']:.1f}",
            f"{row['certain_right']:.1f}" if "certain_right" in row else "–",
        ]
        for row in found["rows"]
    ]
    header = [
        "cell, domain",
        "batch norm",
        "classifier alone, % right",
        "centred",
        "temperature ×",
        "weight of classifier",
    ]
    header += ["balance", "right, %", "certain, %", "right of these, %"]
    made = f"\nFeatures kept by `benchmarks/explore.py --dump` at commit {found['features_from_commit']}.\n"
    return table(header, rows) + made + source("explore/labelers.json", found)


def precision() -> str:
    """bf16 against fp32."""
    found = read("precision.json")
    rows = [
        [name, *(f"{value:.1f}" for value in found["accuracy"][name]), f"{found['means'][name]:.2f}"]
        for name in ("bf16", "fp32")
    ]
    text = f"\nThe means differ by {abs(found['difference']):.2f} points (bar: 1).\n"
    header = ["precision", *(f"run {n + 1}" for n in range(len(rows[0]) - 2)), "mean"]
    return table(header, rows) + text + source("precision.json", found)


def small_sizes() -> Any:
    sys.path.insert(0, str(ROOT / "tests" / "reliability"))
    import sizes

    return sizes


TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "precision": precision,
    "explore-digits": lambda: explored("digits-dg"),
    "labelers": labelers,
    "explore-pacs": lambda: explored("pacs"),
    "trust": lambda: trust_table(read("trust.json")),
    "diagnosis": lambda: diagnosis_table(read("diagnosis.json")),
    "label-next": lambda: label_next_table(read("label_next.json")),
    "soak-kills": lambda: kills_table(read("soak.json")),
    "soak-faults": lambda: faults_table(read("soak.json")),
    "soak-fuzz": lambda: fuzz_table(read("soak.json")),
    "soak-sizes": lambda: sizes_table(read("soak.json"), small_sizes()),
    "ranks": lambda: ranks_table(read("ranks.json")),
    "large-data": lambda: large_data_table(read("large_data.json")),
}


def fill(text: str) -> str:
    return BLOCK.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)


def main() -> None:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
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
