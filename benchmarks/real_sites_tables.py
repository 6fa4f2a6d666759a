"""The tables of docs/results/real-sites.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in.

Tables whose results file is missing are listed at the end, with the command that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

from new_site_tables import adapt_table
from real_sites_scores import (
    BASE,
    CENTRAL,
    OURS,
    Row,
    accuracy,
    all_cells_table,
    balanced,
    benches_of,
    cells_by_method,
    gain,
    lead,
    methods_table,
)
from scipy.stats import spearmanr
from table_text import RESULTS, read, source, table
from trust_tables import label_next_table

from proud.trust.intervals import Interval, accuracy_interval

LABEL_NEXT = "python benchmarks/label_next.py RUN... --choices chosen random --data wbc --work DIR --out …"
MADE_BY = {
    "wbc.jsonl": "proud bench wbc --root DIR --out runs/wbc",
    "rsscn7.jsonl": "proud bench rsscn7 --root DIR --out runs/rsscn7",
    "wbc-runs.json": "python benchmarks/real_sites.py runs/wbc --data wbc --out benchmarks/results/wbc-runs.json",
    "rsscn7-runs.json": "python benchmarks/real_sites.py runs/rsscn7 --data rsscn7 --out …",
    "wbc-label-next.json": LABEL_NEXT,
    "wbc-adapt.json": "python benchmarks/adapt.py RUN... --data-name wbc --out …",
}


MISSING = "Not measured yet: "


def measured(*names: str, make: Callable[..., str]) -> str:
    """The table, or which commands are still to be run."""
    missing = [name for name in names if not (RESULTS / name).exists()]
    if missing:
        return MISSING + "; ".join(f"`{MADE_BY[name]}`" for name in missing) + ".\n"
    return make(*(read(name) for name in names))


# ---- what happened at each site


def mine(result: Row, labeled: str, method: str) -> dict[str, list[Row]]:
    """Runs of one method with these labels, by unseen site."""
    found: dict[str, list[Row]] = {}
    for run in result["runs"]:
        if (run["labeled"], run["method"], run["preset"]) == (labeled, method, "auto") and "confusion" in run:
            found.setdefault(run["test"], []).append(run)
    return found


def recalls_table(result: Row, name: str) -> str:
    """Recall per class and site, source-only and ours: means over seeds, with the interval for the images."""
    ours, base = mine(result, CENTRAL, OURS), mine(result, CENTRAL, BASE)
    lines = []
    for site, runs in ours.items():
        for k, label in enumerate(runs[0]["classes"]):
            images = sum(runs[0]["confusion"][k])
            if not images:
                continue
            cells = []
            for each in (base.get(site, []), runs):
                values = [run["test_recall"][k] for run in each]
                cells.append(str(accuracy_interval(fmean(values), images)) if values else "–")
            lines.append([site, label, *cells])
    return table(["unseen site", "class", BASE, OURS], lines) + source(name, result)


def scores_table(result: Row, name: str) -> str:
    """Scores of the saved network in which all classes count alike, of every run, with intervals for the images."""
    lines = []
    for method in (BASE, OURS):
        for site, runs in mine(result, CENTRAL, method).items():
            for run in runs:
                cells = []
                for score in ("balanced_accuracy", "macro_f1", "auroc"):
                    found = run["test_scores"][score]
                    cells.append(str(Interval(found["value"], *found["interval"], run["images"][site])))
                lines.append([site, f"{method}, seed {run['seed']}", *cells])
    heads = ["unseen site", "run", "balanced accuracy", "macro F1", "macro AUROC"]
    return table(heads, sorted(lines)) + source(name, result)


def confusion_table(result: Row, name: str, most: int = 3) -> str:
    """The largest confusions of each site, summed over seeds."""
    lines = []
    for site, runs in mine(result, CENTRAL, OURS).items():
        classes = runs[0]["classes"]
        counts = {
            (k, j): sum(run["confusion"][k][j] for run in runs)
            for k in range(len(classes))
            for j in range(len(classes))
            if j != k
        }
        totals = [sum(sum(run["confusion"][k]) for run in runs) for k in range(len(classes))]
        largest = sorted(counts, key=lambda pair: -counts[pair])[:most]
        words = [
            f"{classes[k]} as {classes[j]} ({100 * counts[k, j] / totals[k]:.0f} % of {totals[k]})"
            for k, j in largest
            if counts[k, j]
        ]
        lines.append([site, "; ".join(words) or "none"])
    return table(["unseen site", "what was taken for what, over all seeds"], lines) + source(name, result)


def unseen_trust_table(result: Row, name: str) -> str:
    """Calibration, coverage and abstention at the unseen site, fitted on validation images of the labeled one."""
    lines = []
    for site, runs in mine(result, CENTRAL, OURS).items():
        found = [run["trust"] for run in runs if "trust" in run]
        if not found:
            continue
        risks = [each["risk"] for each in found if each["risk"] is not None]
        lines.append(
            [
                site,
                " → ".join(f"{100 * fmean(each[key] for each in found):.1f}" for key in ("ece_before", "ece_after")),
                f"{100 * fmean(each['coverage'] for each in found):.0f}",
                f"{fmean(each['set_size'] for each in found):.2f}",
                f"{100 * fmean(each['answered'] for each in found):.0f}",
                f"{100 * fmean(risks):.0f}" if risks else "–",
            ]
        )
    heads = [
        "unseen site",
        "ECE, %",
        f"sets contain the class, % (promised on {CENTRAL}: {100 * result['coverage']:.0f})",
    ]
    heads += ["classes per set", "answered, %", f"of these wrong, % (promised: {100 * result['risk']:.0f})"]
    return table(heads, lines) + source(name, result)


def verdict_rows(results: Sequence[Row]) -> list[Row]:
    """Every unlabeled site of every run that has an estimate and true labels."""
    runs = [run for result in results for run in result["runs"]]
    return [site for run in runs for site in run["sites"] if site["estimate"] is not None]


def correlation(sites: Sequence[Row]) -> float | None:
    if len({site["accuracy"] for site in sites}) < 2:
        return None
    return float(spearmanr([site["estimate"]["accuracy"] for site in sites], [site["accuracy"] for site in sites])[0])


def verdicts_table(*results: Row) -> str:
    """Verdicts beside the truth, over all sites of both sets."""
    sites, lines = verdict_rows(results), []
    for verdict in dict.fromkeys(site["verdict"] for site in sites):
        truth = [100 * site["accuracy"] for site in sites if site["verdict"] == verdict]
        lines.append([verdict, str(len(truth)), f"{min(truth):.0f}–{max(truth):.0f}", f"{fmean(truth):.0f}"])
    holds = fmean(site["estimate"]["low"] <= site["accuracy"] <= site["estimate"]["high"] for site in sites)
    rho = correlation(sites)
    words = (
        f"\nSpearman's correlation of estimate and truth over {len(sites)} sites: "
        f"{'–' if rho is None else f'{rho:.2f}'}. The 90 % interval contains the truth in {100 * holds:.0f} %.\n"
    )
    heads = ["verdict", "sites", "true accuracy of the pseudo-labels, %", "mean"]
    made = "".join(source(f"{result['data']}-runs.json", result) for result in results)
    return table(heads, lines) + words + made


# ---- all of it


def targets_table() -> str:
    """What had to be shown, written down before the runs."""
    wbc, rsscn7 = (cells_by_method(data, score) for data, score in (("wbc", balanced), ("rsscn7", accuracy)))
    lines = [
        target("`rsscn7`, all 12 combinations, proud-plus − erm-noisemix, points", gain(rsscn7), 3),
        target("the same, the least gain of a combination", gain(rsscn7, least=True), -2),
        target("`wbc`, labels of barcelona, mean of class recalls, proud-plus − erm-noisemix", gain(wbc, CENTRAL), 5),
        target("`wbc`: proud-plus − best other method", lead(wbc, CENTRAL), 0),
        target("`rsscn7`: proud-plus − best other method", lead(rsscn7), 0),
    ]
    files = ("wbc-runs.json", "rsscn7-runs.json")
    there = all((RESULTS / name).exists() for name in files)
    rho = correlation(verdict_rows([read(name) for name in files])) if there else None
    lines.append(target("verdicts, Spearman over all sites of both sets", rho, 0.7, digits=2))
    return table(["measure", "measured", "target", ""], lines)


def target(name: str, value: float | None, bar: float, digits: int = 1) -> list[str]:
    if value is None:
        return [name, "not yet", f"≥ {bar:g}", ""]
    return [name, f"{value:.{digits}f}", f"≥ {bar:g}", "met" if value >= bar else "**missed**"]


def made_of(data: str, make: Callable[[dict[str, list[Row]]], str]) -> str:
    benches = benches_of(data)
    files = ", ".join(f"`benchmarks/results/{name}.jsonl`" for name in benches)
    if data not in benches:
        return measured(f"{data}.jsonl", make=lambda rows: "")
    first = benches[data][0]
    return f"{make(benches)}\n{files} · commit {first['commit']} · {first['device']}\n"


TABLES: dict[str, Callable[[], str]] = {
    "real-targets": targets_table,
    "wbc-balanced": lambda: made_of("wbc", partial(methods_table, labeled=CENTRAL, score=balanced)),
    "wbc-accuracy": lambda: made_of("wbc", partial(methods_table, labeled=CENTRAL, score=accuracy)),
    "rsscn7-methods": lambda: made_of("rsscn7", partial(all_cells_table, score=accuracy)),
    "wbc-recalls": lambda: measured("wbc-runs.json", make=partial(recalls_table, name="wbc-runs.json")),
    "wbc-scores": lambda: measured("wbc-runs.json", make=partial(scores_table, name="wbc-runs.json")),
    "wbc-confusion": lambda: measured("wbc-runs.json", make=partial(confusion_table, name="wbc-runs.json")),
    "wbc-trust": lambda: measured("wbc-runs.json", make=partial(unseen_trust_table, name="wbc-runs.json")),
    "real-verdicts": lambda: measured("wbc-runs.json", "rsscn7-runs.json", make=verdicts_table),
    "wbc-label-next": lambda: measured(
        "wbc-label-next.json", make=partial(label_next_table, name="wbc-label-next.json")
    ),
    "wbc-adapt": lambda: measured("wbc-adapt.json", make=partial(adapt_table, "wbc-adapt.json")),
}


class Part(NamedTuple):
    table: str
    title: str
    words: str


PARTS = (
    Part(
        "wbc-balanced",
        "Four laboratories: mean recall of the classes",
        "In %, mean and standard deviation over seeds, with labels of barcelona; each column is the unseen laboratory, "
        "with its number of images. The last column has the combinations in which a small laboratory has the labels.",
    ),
    Part("wbc-accuracy", "Four laboratories: accuracy", "This is mostly the recall of the most frequent classes."),
    Part("wbc-scores", "Four laboratories: every run", "With 95 % intervals for the draw of the images."),
    Part("wbc-recalls", "Four laboratories: recall of each class", "With 95 % intervals for the draw of the images."),
    Part("wbc-confusion", "Four laboratories: confusions", "The most frequent ones of each laboratory."),
    Part(
        "rsscn7-methods",
        "Four scales: accuracy",
        "In %, over all 12 combinations; all classes have 100 images per scale.",
    ),
    Part(
        "real-verdicts",
        "Verdicts on unlabeled sites",
        "Computed without labels, beside the true accuracy of the pseudo-labels.",
    ),
    Part(
        "wbc-trust",
        "Calibration at the unseen laboratory",
        "With prediction sets and abstention, for `proud-plus`; fitted on validation images of barcelona.",
    ),
    Part("wbc-label-next", "20 labels per site", "Chosen by `proud label-next`, against as many random ones."),
    Part(
        "wbc-adapt",
        "Adapting",
        "The images of the unseen laboratory classified together (`proud predict --adapt`), without training.",
    ),
)


def all_parts() -> str:
    """Each measured table under its heading, then a list of the others."""
    made = {part: TABLES[part.table]() for part in PARTS}
    there = [f"## {part.title}\n\n{part.words}\n\n{text}\n" for part, text in made.items() if MISSING not in text]
    todo: dict[str, list[str]] = {}
    for part, text in made.items():
        if MISSING in text:
            todo.setdefault(text.removeprefix(MISSING).rstrip(".\n"), []).append(part.title)
    rows = [[command, "; ".join(titles)] for command, titles in todo.items()]
    missing = f"## Not measured yet\n\n{table(['command', 'tables that it makes'], rows)}" if rows else ""
    return "".join(there) + missing


def status() -> str:
    """How much of the page is measured, in one sentence."""
    missing = sum(MISSING in TABLES[part.table]() for part in PARTS)
    if missing == len(PARTS):
        return "**Nothing here is measured yet**: the runs take a GPU. The page has data, targets and commands.\n"
    return f"{len(PARTS) - missing} of {len(PARTS)} tables are measured; the others are listed at the end.\n"
