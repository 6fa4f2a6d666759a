"""The tables of what was tried on the development cells, as Markdown, for `benchmarks/docs_tables.py`."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

from table_text import read, source, table

from proud.bench.plan import DEVELOPMENT


def explored(data: str) -> str:
    """Variants on the development cells: test accuracy over the main phase."""
    rows = []
    for run in read(f"explore/{data}.jsonl"):
        variant = run["variant"]
        trail = " → ".join(f"{point['test_accuracy']:.1f} ({point['epoch']})" for point in run["trail"])
        last = run["trail"][-1]
        labels = ", ".join(
            f"{name} {domain['pseudo']:.0f} / {domain['classifier']:.0f}"
            for name, domain in last.items()
            if isinstance(domain, dict) and "pseudo" in domain
        )
        thinned = {"labeled classes thinned to": f"1 : {1 / run['rarest']:g}"} if "rarest" in run else {}
        rows.append([run["cell"], variant["method"], settings_of(variant | thinned), trail, labels, run["commit"][:7]])
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


def explored_baselines() -> str:
    """Settings of other methods on the development cells: what they end at, and which class they name most."""
    rows = []
    for run in read("explore/baselines.jsonl"):
        variant, last = run["variant"], run["trail"][-1]
        most = ", ".join(f"{name} {100 * domain['largest']:.0f}" for name, domain in domains_of(last).items())
        start = run["trail"][0]
        values = [f"{start[key]:.1f} → {last[key]:.1f}" for key in ("val_accuracy", "test_accuracy")]
        made = f"{run['device'].partition(':')[0]}, {run['commit'][:7]}"
        rows.append([run["cell"], variant["method"], settings_of(variant), str(last["epoch"]), *values, most, made])
    header = ["cell", "method", "settings", "main epochs", "source validation, %", "unseen, %"]
    header += ["commonest answer on unlabeled domains, % of images", "device, commit"]
    told = "`benchmarks/results/explore/baselines.jsonl`, made by `benchmarks/explore.py`; seed 7"
    return table(header, rows) + f"\n{told}; from the end of pretraining to the end of the run.\n"


def settings_of(variant: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in variant.items() if key not in ("name", "method")) or "–"


def domains_of(point: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in point.items() if isinstance(value, dict) and "classifier" in value}


LOOKS = {"pacs": (8, 10, 12), "digits-dg": (50, 75, 100)}  # the epochs that a rule is about
AGAINST = {"even": "base", "nou": "even", "th": "even"}
CHANGES = {"even": "`class_mix` `even`", "nou": "`udmix` off", "th": "`threshold` 0.15"}


def choices() -> str:
    """What settings were chosen by: their gains on the development cells, over the last looks."""
    rows = []
    for data, epochs in LOOKS.items():
        found: dict[tuple[str, str, bool], dict[str, float]] = {}
        for run in read(f"explore/{data}.jsonl"):
            seen = {point["epoch"]: point["test_accuracy"] for point in run["trail"]}
            if set(epochs) <= set(seen):
                mean = fmean(seen[epoch] for epoch in epochs)
                found.setdefault((run["commit"], run["cell"], "rarest" in run), {})[run["variant"]["name"]] = mean
        for (_, cell, thinned), values in found.items():
            for name, before in AGAINST.items():
                if name in values and before in values:
                    where = f"{cell}, labeled classes thinned" if thinned else cell
                    gain = values[name] - values[before]
                    rows.append([CHANGES[name], where, f"{values[before]:.1f}", f"{values[name]:.1f}", f"{gain:+.2f}"])
    rows.sort(key=lambda row: list(CHANGES.values()).index(row[0]))
    looks = "; ".join(f"`explore/{data}.jsonl`: mean of epochs {', '.join(map(str, at))}" for data, at in LOOKS.items())
    return (
        table(["setting", "cell", "without", "with", "gain"], rows) + f"\nIn `benchmarks/results`, seed 7. {looks}.\n"
    )


RECIPES = ("`labeled`, 0.35", "`even`, 0.35", "`even`, 0.15")  # class_mix, threshold
RECIPE_FILES = {
    "pacs": ("pacs-plus-labeled.jsonl", "pacs-even.jsonl", "pacs.jsonl"),
    "digits-dg": ("digits-plus-labeled.jsonl", None, "digits-dg.jsonl"),
}


def recipes() -> str:
    """`proud-plus` before and after its last two choices, cell by cell, with a reported seed."""
    rows = []
    for data, files in RECIPE_FILES.items():
        found = [
            {
                (run["labeled"], run["test"]): 100 * run["test_accuracy"]
                for run in (read(file) if file else ())
                if run["method"] == "proud-plus" and run["seed"] == 2022
            }
            for file in files
        ]
        for cell in found[0]:
            mark = " †" if cell in DEVELOPMENT[data] else ""
            values = [f"{each[cell]:.1f}" if each else "–" for each in found]
            rows.append([" → ".join(cell).replace("_", " ") + mark, *values])
        means = [f"**{fmean(each.values()):.1f}**" if each else "–" for each in found]
        rows.append([f"**mean of {len(found[0])}**", *means])
    names = ", ".join(f"`{file}`" for files in RECIPE_FILES.values() for file in files if file)
    told = f"\n{names} in `benchmarks/results`, seed 2022; †: development cells.\n"
    return table(["cell", *RECIPES], rows) + told


def class_mixes() -> str:
    """Where classes are rare in one domain or in all: which mix to expect."""
    found = read("class_mix.json")
    rows = []
    for rare_in, cell in product(("the labeled domain", "all domains"), sorted(DEVELOPMENT["digits-dg"])):
        mine = [row for row in found["rows"] if (row["rare_in"], row["labeled"], row["test"]) == (rare_in, *cell)]
        means = [
            f"{fmean(row[measure] for row in mine if row['class_mix'] == mix):.1f}"
            for measure in ("accuracy", "mean_recall")
            for mix in ("labeled", "even")
        ]
        rows.append([rare_in, " → ".join(cell), *means])
    header = ["classes are rare in", "cell", "`labeled`: accuracy", "`even`: accuracy"]
    header += ["`labeled`: mean over classes", "`even`: mean over classes"]
    seeds = ", ".join(map(str, sorted({row["seed"] for row in found["rows"]})))
    side, first = found["settings"]["size"], found["rows"][0]
    told = f"\n{found['data']}, {side} px, {first['images'][first['labeled']]} labeled images, "
    told += f"classes as 1 : {1 / found['rarest']:g} at most; seeds {seeds}."
    return table(header, rows) + told + source("class_mix.json", found)


def short_pretraining() -> str:
    """`proud` with and without UDMix after pretrainings of two lengths."""
    rows = []
    for name in ("pacs.jsonl", "pacs-short-pretraining.jsonl"):
        for run in read(name):
            if (run["labeled"], run["test"]) != ("sketch", "photo") or run["method"] not in ("proud", "proud-no-udmix"):
                continue
            config = run["config"]["method_config"]
            first, last = (
                ", ".join(f"{domain} {100 * signals['accuracy']:.0f}" for domain, signals in run[when].items())
                for when in ("domains_first", "domains_last")
            )
            rows.append(
                [str(config["pretrain_epochs"]), run["method"], first, last, f"{100 * run['test_accuracy']:.1f}"]
            )
    header = ["epochs of pretraining", "method", "pseudo-labels right, %: first epoch", "last epoch", "photo, %"]
    return table(header, rows) + "\n`pacs.jsonl`, `pacs-short-pretraining.jsonl` in `benchmarks/results`, seed 2022.\n"


def cut_off() -> str:
    """Runs that were not finished: test accuracy, λ and pseudo-labels as far as they came."""
    runs = read("pacs-running-cut.jsonl")
    rows = []
    for run in runs:
        main = [record for record in run["records"] if record["stage"] == "main"]
        trail = " → ".join(f"{100 * r['test_accuracy']:.1f} ({r['epoch']})" for r in main if "test_accuracy" in r)
        ends = [
            ", ".join(
                f"{name} {100 * domain['accuracy']:.0f} / {domain['lambda_uncertainty']:.2f}"
                for name, domain in record["domains"].items()
            )
            for record in (main[0], main[-1])
        ]
        rows.append([run["method"], trail, *ends])
    header = ["method", "test accuracy (epoch)"]
    header += [f"pseudo-labels right, % / λ_ε: {when}" for when in ("first epoch", "last epoch seen")]
    first = runs[0]
    made = f"commit {first['commit']}, {first['device']}, seed {first['seed']}"
    return (
        table(header, rows)
        + f"\n`benchmarks/results/pacs-running-cut.jsonl`: records of runs that were cut off; {made}.\n"
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


def line_drawings() -> str:
    """A linear classifier on ImageNet features: images as they are, as line drawings, both."""
    found = read("explore/line_drawings.json")
    rows = []
    for row in found["rows"]:
        domains = [f"{name} {value:.1f}" for name, value in row.items() if isinstance(value, float)]
        rows.append([row["cell"], row["learned from"], domains[0], ", ".join(domains[1:])])
    header = ["cell", "learned from", "unseen, %", "unlabeled, %"]
    return table(header, rows) + source("explore/line_drawings.json", found)
