"""The tables of docs/guide/trust.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from table_text import read, table


def source(name: str, result: dict[str, Any]) -> str:
    about = str(result["data"])
    if "images" in result:
        images = ", ".join(f"{domain} {count}" for domain, count in result["images"].items())
        about += f"; images in the first run: {images}; {result['size']} px"
    return f"\n{about}. `benchmarks/results/{name}` · commit {result['commit']} · {result['device']}\n"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def trust_table(*names: str) -> str:
    """For each data set a row of means on the labeled domain and one on the unseen domain."""
    found = {name: read(name) for name in names}
    rows = [line for result in found.values() for line in trust_rows(result)]
    target, limit = (f"{next(iter(found.values()))[key] * 100:.0f} %" for key in ("coverage", "risk"))
    header = ["runs", "domain", "accuracy", "ECE before → after scaling", f"sets: coverage (target {target})", "size"]
    header += ["answered", f"of these wrong (limit {limit})"]
    return table(header, rows) + "".join(source(name, result) for name, result in found.items())


def trust_rows(result: dict[str, Any]) -> list[list[str]]:
    lines = []
    for part, title in (("source", "labeled"), ("unseen", "unseen")):
        values = {key: [row[part][key] for row in result["rows"]] for key in result["rows"][0][part]}
        coverage = values["coverage"]
        lines.append(
            [
                f"{result['data']}: {len(result['rows'])}" if part == "source" else "",
                title,
                percent(fmean(values["accuracy"])),
                f"{percent(fmean(values['ece_before']))} → {percent(fmean(values['ece_after']))}",
                f"{percent(fmean(coverage))} ({percent(min(coverage))} to {percent(max(coverage))})",
                f"{fmean(values['set_size']):.2f}",
                percent(mean(values["answered"])),
                percent(mean(values["risk"])),
            ]
        )
    return lines


def mean(values: list[float | None]) -> float | None:
    """Of the runs that have one."""
    given = [value for value in values if value is not None]
    return fmean(given) if given else None


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
    """Per kind of labels, the mean over the runs, with the lowest and the highest."""
    titles = {"none": "none", "chosen": f"{result['k']} chosen", "random": f"{result['k']} random"}
    sites = list(result["rows"][0]["pseudo_label_accuracy"])
    lines = []
    for kind, title in titles.items():
        rows = [row for row in result["rows"] if row["labels"] == kind]
        columns = [[row["pseudo_label_accuracy"][site] for row in rows] for site in sites]
        columns.append([row["test_accuracy"] for row in rows])
        lines.append([title, *(f"{fmean(column):.1f} ({min(column):.1f} to {max(column):.1f})" for column in columns)])
    test = result["rows"][0]["test"]
    header = ["labels per site", *(f"right pseudo-labels of {site}, %" for site in sites), f"accuracy on {test}, %"]
    return table(header, lines) + source(name, result)
