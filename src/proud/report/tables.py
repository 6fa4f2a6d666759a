"""The tables of the paper, with published rows and ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from proud.bench.plan import DEVELOPMENT, Combo, Key
from proud.bench.results import ResultRow, check_same_images, check_same_settings, key_of
from proud.bench.scores import Cell, Scores, Summary, balanced_accuracy, paired, scores_of, summarize
from proud.config import method_settings
from proud.errors import UserError
from proud.files import replacing
from proud.methods import METHODS
from proud.report.formats import csv_text, latex, markdown
from proud.report.published import PUBLISHED, PUBLISHED_METHODS, PublishedRow, PublishedTable

ABLATION = {"proud-no-udmix": "w/o UDMix", "proud-no-pml": "w/o PML"}
ABLATION_CELLS: tuple[Combo, ...] = (("photo", "cartoon"), ("photo", "sketch"), ("sketch", "photo"))
"""The cells over which our smaller ablation is compared with that of the paper."""


@dataclass(frozen=True)
class Line:
    """`difference`: our Avg minus the published one over the same cells; `printed`: Avg and Std in the paper."""

    label: str
    published: bool
    summary: Summary
    difference: float | None = None
    printed: tuple[float, float] | None = None
    signed: bool = False
    spread_of: tuple[Summary, Summary] | None = None
    """of a difference row: its Std is the difference of these two Stds, as in the paper"""

    @property
    def average(self) -> float | None:
        return self.printed[0] if self.printed else self.summary.average

    @property
    def std(self) -> float | None:
        if self.spread_of:
            first, second = (summary.std for summary in self.spread_of)
            return None if first is None or second is None else first - second
        return self.printed[1] if self.printed else self.summary.std


@dataclass(frozen=True)
class ResultTable:
    """`short`: domain → its name in the column heads."""

    title: str
    combos: tuple[Combo, ...]
    short: dict[str, str]
    development: frozenset[Combo]
    lines: tuple[Line, ...]
    footer: tuple[str, ...]

    @property
    def compared(self) -> bool:
        """With published results, which tells our rows from theirs and gives differences."""
        return any(line.published for line in self.lines)


def write_tables(bench: str, rows: Sequence[ResultRow], stem: Path | None, note: str = "") -> str:
    """Write STEM.md, STEM.csv and STEM.tex if a stem is given; returns the Markdown."""
    tables = make_tables(bench, rows, note)
    texts = {
        ".md": "\n".join(markdown(table) for table in tables),
        ".csv": csv_text(tables),
        ".tex": "\n".join(latex(table) for table in tables),
    }
    if stem is None:
        return texts[".md"]
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            with replacing(stem.with_name(stem.name + suffix)) as part:
                part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write the tables to {stem.parent}: {error.strerror or error}.") from error
    return texts[".md"]


def make_tables(bench: str, rows: Sequence[ResultRow], note: str = "") -> list[ResultTable]:
    """The main table; with ablation runs, theirs; and where nothing is published, balanced accuracy if it differs."""
    rows = distinct([row for row in rows if row["bench"] == bench])
    if not rows:
        raise UserError(f"There are no results of {bench} yet.")
    official = is_benchmark(bench, rows)
    published = PUBLISHED.get(bench) if official else None
    combos, short = columns(published, rows)
    development = DEVELOPMENT.get(bench, frozenset()) if official else frozenset()
    methods = sorted({row["method"] for row in rows}, key=method_order)
    scores = {method: scores_of(rows, method) for method in methods}
    ours = {method: summarize(scores[method], combos, development) for method in methods}
    lines = [published_line(row, combos, development) for row in (published.rows if published else ())]
    for method in methods:
        reference = published.row(PUBLISHED_METHODS.get(method, "")) if published else None
        lines.append(our_line(f"{method} (ours)" if published else method, ours[method], reference))
    notes = dict.fromkeys([note, *(row.get("note", "") for row in rows)])
    title = " ".join([published.title if published else bench, *(f"({text})" for text in notes if text)])
    table = ResultTable(
        title,
        combos,
        short,
        development,
        tuple(lines),
        footer(rows, methods, development, [text for text in notes if text], bool(published)),
    )
    ablation = ablation_table(table, scores, published) if published and published.ablation else None
    balanced = None if published else balanced_table(table, rows, methods, scores)
    return [each for each in (table, ablation, balanced) if each]


def balanced_table(
    table: ResultTable, rows: Sequence[ResultRow], methods: Sequence[str], scores: dict[str, Scores]
) -> ResultTable | None:
    """The same runs by the mean recall of the classes; None without recalls, or if all classes are equally large."""
    balanced = {method: scores_of(rows, method, balanced_accuracy) for method in methods}
    if not any(balanced.values()) or all(nearly_equal(scores[method], balanced[method]) for method in methods):
        return None
    lines = [our_line(method, summarize(balanced[method], table.combos, table.development), None) for method in methods]
    text = "Mean recall of the classes in %, so that each counts alike; otherwise as above."
    return replace(table, title=f"{table.title}: balanced accuracy", lines=tuple(lines), footer=(text,))


def nearly_equal(first: Scores, second: Scores) -> bool:
    """Up to a hundredth of a point, wherever both are known."""
    pairs = [(first[combo][seed], value) for combo, values in second.items() for seed, value in values.items()]
    return all(abs(a - b) < 0.01 for a, b in pairs)


def is_benchmark(bench: str, rows: Sequence[ResultRow]) -> bool:
    """Whether the results are of the benchmark itself and not of a user's folder with its name."""
    official = {row["config"].get("data", bench) == bench for row in rows}
    if len(official) > 1:
        raise UserError(
            f"Some of these results are of {bench}, some of a folder with that name: show them in separate tables."
        )
    return official.pop()


def distinct(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Each run once: several files may contain it. The settings of a method must be the same everywhere."""
    advice = "A row of a table is of one recipe: show them in tables of their own."
    kept: dict[Key, ResultRow] = {}
    first: dict[str, ResultRow] = {}
    for row in rows:
        check_same_settings(
            [first.setdefault(row["method"], row)], {row["method"]: row["config"]}, "these results", advice
        )
        other = kept.setdefault(key_of(row), row)
        if other["test_accuracy"] != row["test_accuracy"]:
            scores = " % and ".join(f"{100 * result['test_accuracy']:.2f}" for result in (other, row))
            raise UserError(
                f"There are two results of {row['method']} {row['labeled']} → {row['test']}, seed {row['seed']}: "
                f"{scores} %. Leave one of them out."
            )
    check_same_images(kept.values(), "Show them in tables of their own.")
    return list(kept.values())


def columns(published: PublishedTable | None, rows: Sequence[ResultRow]) -> tuple[tuple[Combo, ...], dict[str, str]]:
    if published:
        return tuple(published.combos), published.domains
    domains = dict.fromkeys(name for row in rows for name in row["domains"])
    return tuple(permutations(domains, 2)), {name: name for name in domains}


def method_order(method: str) -> tuple[int, str]:
    """Sort key: the order of METHODS, other methods last."""
    names = list(METHODS)
    return (names.index(method) if method in names else len(names), method)


def published_line(row: PublishedRow, combos: Sequence[Combo], development: frozenset[Combo]) -> Line:
    summary = Summary(tuple(combos), tuple(Cell(value) for value in row.cells), development)
    signed = row.method.endswith("Diff.")
    return Line(f"{row.method} (published)", True, summary, printed=(row.average, row.std), signed=signed)


def our_line(label: str, summary: Summary, reference: PublishedRow | None) -> Line:
    line = Line(label, False, summary)
    if reference is None or summary.average is None:
        return line
    published = dict(zip(summary.combos, reference.cells, strict=True))
    same = [published[combo] for combo in summary.present]
    base = reference.average if summary.complete else sum(same) / len(same)
    return replace(line, difference=summary.average - base)


def footer(
    rows: Sequence[ResultRow],
    methods: Sequence[str],
    development: frozenset[Combo],
    notes: Sequence[str],
    compared: bool,
) -> tuple[str, ...]:
    """`compared`: there are published rows, too."""
    lines = [
        "Accuracy in % on all images of the test domain (*), labels from one domain (•), the other domains unlabeled. "
        f"{'Ours: mean' if compared else 'Mean'} of the last five epochs, then of the seeds; ± is the standard "
        "deviation over seeds (ddof 1). Avg and Std (ddof 0) are over combinations; (n/m): only n of m are measured."
    ]
    if compared:
        lines[0] += " Difference: our Avg minus the published one, over the same combinations."
    if notes and compared:
        lines.append(f"Ours: {'; '.join(notes)}. The published rows are the paper's own, on its own data.")
    if development:
        lines.append(
            "†: development cells, whose test accuracy was looked at while choosing; “Avg −†” leaves them out."
        )
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        seeds = Counter(row["seed"] for row in own)
        runs = ", ".join(f"{seed} ({count})" for seed, count in sorted(seeds.items()))
        made = {name: sorted({str(row.get(name)) for row in own}) for name in ("commit", "device")}
        hours = sum(row["seconds"] for row in own) / 3600
        lines.append(
            f"{method}: runs per seed {runs}; {epochs(own)}; commit {', '.join(made['commit'])}; "
            f"{', '.join(made['device'])}; {hours:.2f} h of wall time."
        )
        versions = {version for row in own for version in (row.get("code") or "earlier").split()}
        if len(versions) > 1:
            lines[-1] += f" {len(versions)} versions of the method's code made these runs."
        if warned := sum(bool(row.get("warnings")) for row in own):
            lines[-1] += (
                f" {warned} of {len(own)} runs ended with a warning: nothing learned, or one class for all of a site."
            )
    return tuple(lines)


def epochs(rows: Sequence[ResultRow]) -> str:
    """Epochs of pretraining and of the main stage."""
    settings = [method_settings(row["config"]) for row in rows]
    stages = sorted({f"{config.get('pretrain_epochs', '?')} + {config.get('epochs', '?')}" for config in settings})
    return " or ".join(stages) + " epochs"


# ---- ablation


def ablation_table(table: ResultTable, scores: dict[str, Scores], published: PublishedTable) -> ResultTable | None:
    """ProUD, then ProUD without each part and the difference, published and ours."""
    parts = [method for method in ABLATION if method in scores]
    if not parts or "proud" not in scores:
        return None

    def summary(of: Scores) -> Summary:
        return summarize(of, table.combos, table.development)

    whole = published.row("ProUD")
    lines = [published_line(row, table.combos, table.development) for row in (whole, *published.ablation) if row]
    lines.append(our_line("proud (ours)", summary(scores["proud"]), whole))
    notes = []
    for method in parts:
        part, base, change = map(summary, paired(scores[method], scores["proud"]))
        reference = published.row(f"{ABLATION[method]} Diff.")
        lines.append(our_line(f"{method} (ours)", summary(scores[method]), published.row(ABLATION[method])))
        lines.append(
            replace(our_line(f"{method} Diff. (ours)", change, reference), signed=True, spread_of=(part, base))
        )
        mean = change.average_over(ABLATION_CELLS)
        if mean is not None and reference is not None:
            printed = published_line(reference, table.combos, table.development).summary.average_over(ABLATION_CELLS)
            heads = ", ".join(f"{table.short[a]}•/{table.short[b]}*" for a, b in ABLATION_CELLS)
            notes.append(f"{ABLATION[method]}, mean over {heads}: ours {mean:+.1f}, published {printed:+.1f}.")
    text = "Diff.: to the whole method, over the combinations and seeds that both have; under Std that of the Stds."
    return replace(table, title=f"{table.title}: ablation", lines=tuple(lines), footer=(text, *notes))
