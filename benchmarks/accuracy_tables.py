"""Tables of accuracy as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from functools import cache

from table_text import RESULTS, read, source, table

from proud.methods import METHODS, method_class
from proud.report.formats import NOTHING, markdown
from proud.report.published import PUBLISHED_METHODS
from proud.report.tables import Line, ResultTable, make_tables

BENCHES = ("pacs", "digits-dg")
SMALL = {
    "small-pacs": "PACS, 400 images per site, 64 px",
    "small-digits": "Digits-DG (rebuilt, SYN stand-in), 800 images per site",
}
"""results file → data of small models"""
MEASURED = {
    "pacs": "PACS",
    "digits-dg": "Digits-DG (rebuilt)",
    "office-home": "Office-Home",
    "wbc": "four blood laboratories (`wbc`)",
    "rsscn7": "four satellite scales (`rsscn7`)",
}
"""results file → data"""
SHORT = ("EID (published)", "ProUD (published)", "erm (ours)", "proud (ours)", "proud-plus (ours)")
"""rows of the README's table"""


@cache
def whole(bench: str) -> ResultTable:
    """The main table of a results file."""
    rows = read(f"{bench}.jsonl")
    return make_tables(rows[0]["bench"], rows)[0]


def results(bench: str) -> str:
    """The paper's table with our rows, under a heading of its own."""
    rows = read(f"{bench}.jsonl")
    made = "\n".join(markdown(each).removeprefix("#") for each in make_tables(bench, rows))
    return f"{made}\n`benchmarks/results/{bench}.jsonl`, {len(rows)} runs.\n"


def short() -> str:
    """Average and lowest cell of a few methods."""
    lines = {bench: {line.label: line for line in whole(bench).lines} for bench in BENCHES}
    rows = [[label, *(average_and_worst(lines[bench][label]) for bench in BENCHES)] for label in SHORT]
    return table(["method", *(whole(bench).title for bench in BENCHES)], rows)


def small() -> str:
    """Small models: all combinations, one line per method."""
    lines = {bench: {line.label: line for line in whole(bench).lines} for bench in SMALL}
    rows = [
        [f"`{label}`", *(average_and_worst(lines[bench][label]) for bench in SMALL)]
        for label in lines[next(iter(SMALL))]
    ]
    files = ", ".join(f"`benchmarks/results/{bench}.jsonl`" for bench in SMALL)
    first = read(f"{next(iter(SMALL))}.jsonl")[0]
    return f"{table(['method', *SMALL.values()], rows)}\n{files} · commit {first['commit']} · {first['device']}\n"


def average_and_worst(line: Line) -> str:
    assert line.summary.complete and line.summary.worst and line.average is not None, line.label
    return f"{line.average:.1f} (lowest {line.summary.worst[1]:.1f})"


def averages() -> str:
    """All complete rows, with the two best published methods: one line per method."""
    lines = {bench: {line.label: line for line in whole(bench).lines} for bench in BENCHES}
    labels = [*SHORT[:2], *(f"{name} (ours)" for name in METHODS)]
    rows = [[label, *(average_of(lines[bench].get(label)) for bench in BENCHES)] for label in labels]
    heads = [f"{whole(bench).title}: Avg, Std, lowest" for bench in BENCHES]
    return table(["method", *heads], [row for row in rows if set(row[1:]) != {NOTHING}])


def coverage() -> str:
    """Which data and methods are measured, over how many combinations, with which seeds."""
    rows = []
    for bench, about in MEASURED.items():
        if not (RESULTS / f"{bench}.jsonl").exists():
            rows.append([about, "0", NOTHING, "not measured yet", NOTHING])
            continue
        runs = read(f"{bench}.jsonl")
        cells: dict[str, set[tuple[str, str]]] = {}
        for run in runs:
            cells.setdefault(run["method"], set()).add((run["labeled"], run["test"]))
        seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))
        whole = [f"`{name}`" for name in METHODS if len(cells.get(name, ())) == 12]
        part = [f"`{name}` {len(cells[name])}" for name in METHODS if 0 < len(cells.get(name, ())) < 12]
        rows.append([about, str(len(runs)), seeds, ", ".join(whole) or NOTHING, ", ".join(part) or NOTHING])
    return table(["data", "runs", "seeds", "methods with all 12 combinations", "with some, and how many"], rows)


def mixing() -> str:
    """UDMix in the PACS ablation: mixing ratio from the uncertainty, and pseudo-labels, first → last epoch."""
    runs = read("pacs.jsonl")
    ablated = {(run["labeled"], run["test"]) for run in runs if run["method"] == "proud-no-udmix"}
    rows = []
    for run in runs:
        if run["method"] == "proud" and (run["labeled"], run["test"]) in ablated:
            for site, first in run["domains_first"].items():
                last = run["domains_last"][site]
                ratio = f"{first['lambda_uncertainty']:.2f} → {last['lambda_uncertainty']:.2f}"
                right = f"{100 * first['accuracy']:.0f} → {100 * last['accuracy']:.0f}"
                rows.append([f"{run['labeled']} → {run['test']}", site, ratio, right])
    return table(["labeled → unseen", "unlabeled", "mean λ", "right pseudo-labels, %"], sorted(rows))


def average_of(line: Line | None) -> str:
    return ", ".join(numbers(line)) if line and line.summary.complete else NOTHING


def numbers(line: Line) -> list[str]:
    """Avg, Std and the lowest cell."""
    worst = line.summary.worst
    return [f"{value:.1f}" for value in (line.average, line.std, worst and worst[1]) if value is not None]


def measured(name: str) -> str:
    """A method and its variants, beside the published row of the same combinations."""
    family = [each for each in METHODS if method_class(each) is method_class(name)]
    rows, used = [], {}
    for bench in BENCHES:
        lines = {line.label: line for line in whole(bench).lines}
        for method in family:
            line = lines.get(f"{method} (ours)")
            if line is None:
                continue
            present = line.summary.present
            published = lines.get(f"{PUBLISHED_METHODS.get(method)} (published)")
            theirs = published.summary.average_over(present) if published else None
            used[bench] = f"`benchmarks/results/{bench}.jsonl`"
            cells = f"{len(present)} of {len(line.summary.combos)}"
            rows.append([whole(bench).title, f"`{method}`", cells, *numbers(line), f"{theirs:.1f}" if theirs else "–"])
    header = ["data", "method", "combinations", "Avg", "Std", "worst", "published Avg, same combinations"]
    return f"{table(header, rows)}\n{', '.join(used.values())}\n"


def demo() -> str:
    """Accuracy of the demo's runs on the unseen site, and of the pseudo-labels."""
    found = read("demo.json")
    rows = []
    for name, run in found["runs"].items():
        first, last = run.get("domains_first", {}), run.get("domains_last", {})
        right = [f"{site} {100 * first[site]['accuracy']:.0f} → {100 * last[site]['accuracy']:.0f} %" for site in first]
        rows.append([f"`{name}`", f"{100 * run['test_accuracy']:.0f} %", ", ".join(right) or "–"])
    about = run | {"command": found["command"]}
    header = ["method", "accuracy on street", "right pseudo-labels, first → last epoch"]
    return table(header, rows) + source("demo.json", about)
