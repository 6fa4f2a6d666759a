"""The tables of docs/guide/trust.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

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


def site_accuracy_table(result: dict[str, Any]) -> str:
    """Errors of the estimate on sites that it was not fitted on."""
    rows = []
    for name, found in result["tests"].items():
        verdicts = "; ".join(
            f"{verdict}: {part['sites']} ({100 * part['lowest']:.0f}–{100 * part['highest']:.0f} %)"
            for verdict, part in found["verdicts"].items()
        )
        error, width = 100 * found["mean_error"], 100 * found["width"]
        rows.append(
            [name, str(found["sites"]), f"{error:.1f}", f"{100 * found['holds']:.0f} %", f"{width:.0f}", verdicts]
        )
    header = ["tested on", "sites", "mean error, points", "the 90 % interval holds", "its width, points"]
    every = f"\nAll {len(result['sites'])} sites are in `benchmarks/results/site_accuracy.json`.\n"
    return table([*header, "verdicts (true accuracy)"], rows) + every + source("site_accuracy.json", result)


def few_labels_table(result: dict[str, Any]) -> str:
    """What 12 validation images and 120 images out of their folds promise, and what new images show."""
    rows = []
    for name, found in result["summary"].items():
        domain, _, kind = name.partition(", ")
        words = {"val": "validation images", "folds": "images out of their folds"}[kind]
        risks = [found[key] for key in ("risk 0.05", "risk 0.1", "risk 0.2")]
        rows.append(
            [
                f"{domain} ({percent(found['accuracy'])} %)",
                f"{found['images']:.0f} {words}",
                f"{percent(found['ece_before'])} → {percent(found['ece_after'])}",
                f"{percent(found['coverage'])}, {found['set_size']:.2f}",
                *(f"{100 * r['usable']:.0f}, {percent(r['answered'])}, {100 * r['broken']:.0f}" for r in risks),
            ]
        )
    header = ["domain (accuracy)", "calibrated on", "ECE", "90 % sets: coverage, size"]
    header += [f"risk {risk} %: % usable, answered, broken" for risk in (5, 10, 20)]
    draws = next(iter(result["summary"].values()))["draws"]
    return table(header, rows) + f"\n{draws} draws per domain." + source("few_labels.json", result)


def label_next_table(result: dict[str, Any], name: str = "label_next.json") -> str:
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
    return table(header, rows) + source(name, result)
