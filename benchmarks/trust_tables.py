"""The tables of docs/trust.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from table_text import table


def source(name: str, result: dict[str, Any]) -> str:
    about = str(result["data"])
    if "images" in result:
        images = ", ".join(f"{domain} {count}" for domain, count in result["images"].items())
        about += f"; images in the first run: {images}; {result['size']} px"
    made = f"`{result['command']}` · commit {result['commit']} · {result['device']}"
    return f"\n{about}. `benchmarks/results/{name}` · {made}\n"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def trust_table(result: dict[str, Any], name: str) -> str:
    """One row per run, and a row of means."""
    both = ("source", "unseen")

    def cells(name: str, rows: list[dict[str, Any]]) -> list[str]:
        def mean(part: str, key: str) -> float | None:
            values = [row[part][key] for row in rows if row[part][key] is not None]
            return fmean(values) if values else None

        return [
            name,
            f"{fmean(row['temperature'] for row in rows):.2f}",
            " / ".join(percent(mean(part, "accuracy")) for part in both),
            *(f"{percent(mean(part, 'ece_before'))} → {percent(mean(part, 'ece_after'))}" for part in both),
            " / ".join(percent(mean(part, "coverage")) for part in both),
            " / ".join(f"{mean(part, 'set_size'):.2f}" for part in both),
            f"{percent(mean('unseen', 'answered'))}, {percent(mean('unseen', 'risk'))}",
        ]

    header = [
        "labeled → unseen (method, seed)",
        "T",
        "accuracy, source / unseen",
        "ECE source",
        "ECE unseen",
        f"coverage, source / unseen (target: {result['coverage']:.0%})",
        "mean set size",
        f"unseen: % answered, % of these wrong (target: {result['risk']:.0%})",
    ]
    rows = [
        cells(f"{row['labeled']} → {row['test']} ({row['method']}, {row['seed']})", [row]) for row in result["rows"]
    ]
    return table(header, [*rows, cells("**mean**", result["rows"])]) + source(name, result)


def diagnosis_table(result: dict[str, Any]) -> str:
    """Rank correlations and verdicts."""
    rows = []
    for name, found in result["spearman"].items():
        verdicts = "; ".join(
            f"{verdict}: {part['sites']} ({100 * part['lowest']:.0f}–{100 * part['highest']:.0f} %)"
            for verdict, part in result["verdicts"][name].items()
        )
        signals = ", ".join(f"{key} {value:+.2f}" for key, value in found.items() if key not in ("sites", "score", "p"))
        whole = f"**{found['score']:.2f}** (p = {found['p']:g})" if "score" in found else "–"
        rows.append([name, str(found["sites"]), whole, signals, verdicts])
    header = ["cells", "sites", "Spearman, score", "Spearman, single signals", "verdicts (pseudo-label accuracy)"]
    every = f"\nAll {len(result['sites'])} sites are in `benchmarks/results/diagnosis.json`.\n"
    return table(header, rows) + every + source("diagnosis.json", result)


def label_next_table(result: dict[str, Any]) -> str:
    rows = []
    for row in result["rows"]:
        labels = ", ".join(f"{site} {value:.1f}" for site, value in row["pseudo_label_accuracy"].items())
        wrong = ", ".join(f"{site} {count}" for site, count in row.get("wrong_guesses", {}).items())
        cell = f"{row['labeled']} → {row['test']} ({row['method']}, {row['seed']})"
        added = {"none": "none", "chosen": f"{result['k']} chosen", "random": f"{result['k']} random"}[row["labels"]]
        rows.append([cell, added, wrong or "–", labels, f"{row['test_accuracy']:.1f}"])
    header = [
        "labeled → unseen (method, seed)",
        "labels per site",
        "of these, wrong guesses",
        "pseudo-label accuracy, %",
        "test accuracy, %",
    ]
    return table(header, rows) + source("label_next.json", result)
