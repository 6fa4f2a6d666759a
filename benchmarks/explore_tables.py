"""The tables of what was tried on the development cells, as Markdown, for `benchmarks/docs_tables.py`."""

from __future__ import annotations

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


RULE_EPOCHS = (8, 10, 12)


def class_mix_rule() -> str:
    """What the choice of `class_mix` was made by: its gain on the development cells, over the last looks."""
    found: dict[tuple[str, bool], dict[str, float]] = {}
    for run in read("explore/pacs.jsonl"):
        name, seen = run["variant"].get("name"), {point["epoch"]: point["test_accuracy"] for point in run["trail"]}
        if name in ("base", "even"):
            mean = sum(seen[epoch] for epoch in RULE_EPOCHS) / len(RULE_EPOCHS)
            found.setdefault((run["cell"], "rarest" in run), {})[name] = mean
    rows = []
    for (cell, thinned), values in found.items():
        base, even = values["base"], values["even"]
        classes = "thinned" if thinned else "as they are"
        rows.append([cell, classes, f"{base:.1f}", f"{even:.1f}", f"{even - base:+.2f}"])
    told = f"\n`benchmarks/results/explore/pacs.jsonl`, mean of epochs {', '.join(map(str, RULE_EPOCHS))}, seed 7.\n"
    return table(["cell", "labeled classes", "`labeled`", "`even`", "gain"], rows) + told


def class_mix() -> str:
    """PACS with classes expected alike, beside the row that is in the main table."""
    before, even = (
        {
            (run["labeled"], run["test"]): 100 * run["test_accuracy"]
            for run in read(name)
            if run["method"] == "proud-plus"
        }
        for name in ("pacs.jsonl", "pacs-even.jsonl")
    )
    both = [cell for cell in before if cell in even]
    rows = [
        [
            " → ".join(cell).replace("_", " ") + (" †" if cell in DEVELOPMENT["pacs"] else ""),
            f"{before[cell]:.1f}",
            f"{even[cell]:.1f}",
            f"{even[cell] - before[cell]:+.1f}",
        ]
        for cell in both
    ]
    means = [sum(found[cell] for cell in both) / len(both) for found in (before, even)]
    rows.append([f"mean of these {len(both)}", *(f"{mean:.1f}" for mean in means), f"{means[1] - means[0]:+.1f}"])
    told = (
        f"\n`benchmarks/results/pacs-even.jsonl`, {len(even)} of {len(before)} runs, seed 2022; †: development cells.\n"
    )
    return table(["cell", "`labeled`", "`even`", "difference"], rows) + told


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
