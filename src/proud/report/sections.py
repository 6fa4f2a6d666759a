"""What stands on the page, as data: sections of tables, charts and pictures, in reading order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from proud.report.figures.curves import training_curves
from proud.report.figures.maps import feature_maps, training_domains
from proud.report.figures.pictures import (
    Pair,
    Shown,
    certain_and_not,
    gallery_chart,
    pairs_chart,
    training_pairs,
)
from proud.report.figures.style import Chart
from proud.report.figures.trust import confusion, confusion_chart, measured_sets, most_confused, reliability_chart
from proud.report.formats import PlainTable, cells_of, csv_text, heads_of, latex
from proud.report.gather import Bench, Run
from proud.report.run_tables import (
    calibration_table,
    domain_tables,
    look_at_tables,
    published_table,
    runs_table,
    settings_table,
    site_tables,
)
from proud.report.tables import make_tables

Told = Callable[[str], None]


@dataclass(frozen=True)
class TableBlock:
    """`files`: suffix → text, where the table has better ones than its own. `folded`: shown on a click."""

    name: str
    table: PlainTable
    files: dict[str, str]
    folded: bool = False
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class ChartBlock:
    name: str
    chart: Chart
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True)
class PairsBlock:
    """The chart is the same for paper."""

    name: str
    pairs: Sequence[Pair]
    chart: Chart
    kind: Literal["pairs"] = "pairs"


@dataclass(frozen=True)
class GalleryBlock:
    name: str
    domains: dict[str, tuple[list[Shown], list[Shown]]]
    chart: Chart
    kind: Literal["gallery"] = "gallery"


Block = TableBlock | ChartBlock | PairsBlock | GalleryBlock


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


def make_sections(runs: Sequence[Run], benches: Sequence[Bench], told: Told = lambda text: None) -> list[Section]:
    """Empty sections are left out."""
    told("tables and curves")
    found = [
        Section("data", "What was trained on what", "", [*_tables("domains", domain_tables(runs))]),
        Section("results", "Results", "", [*_run_results(runs), *_bench_results(benches)]),
        _sites(runs),
        _curves(runs),
        _maps(runs, told),
        _pairs(runs),
        _gallery(runs),
        _confusion(runs),
        _reliability(runs),
        Section("settings", "Settings", "", [*_tables("settings", settings_table(runs), folded=True)]),
    ]
    return [section for section in found if section.blocks]


def stem(name: str, place: int, run: Run) -> str:
    """A file name of its own for every run, whatever it is called."""
    return f"{name}-{place}-{re.sub(r'[^A-Za-z0-9]+', '-', run.name).strip('-')[:40]}".rstrip("-").lower()


def _tables(name: str, tables: Iterable[PlainTable | None], folded: bool = False) -> list[Block]:
    kept = [table for table in tables if table is not None and table.rows]
    return [
        TableBlock(f"{name}-{place}", table, {"csv": table.csv(), "tex": table.latex()}, folded)
        for place, table in enumerate(kept, 1)
    ]


def _run_results(runs: Sequence[Run]) -> list[Block]:
    return [*_tables("runs", [runs_table(runs)]), *_tables("published", published_table(runs))]


def _bench_results(benches: Sequence[Bench]) -> list[Block]:
    blocks: list[Block] = []
    for bench in benches:
        tables = make_tables(bench.name, bench.rows)
        for place, table in enumerate(tables, 1):
            ours = frozenset(row for row, line in enumerate(table.lines) if not line.published)
            rows = [cells_of(table, line) for line in table.lines]
            shown = PlainTable(table.title, heads_of(table), rows, "\n".join(table.footer), ours)
            name = re.sub(r"[^A-Za-z0-9]+", "-", bench.name).strip("-").lower() or "bench"
            blocks.append(TableBlock(f"table-{name}-{place}", shown, {"csv": csv_text([table]), "tex": latex(table)}))
    return blocks


def _sites(runs: Sequence[Run]) -> Section:
    lead = "How the pseudo-labels of each unlabeled domain look without a single true label of it."
    blocks = [*_tables("sites", site_tables(runs)), *_tables("look-at", look_at_tables(runs), folded=True)]
    return Section("sites", "Unlabeled domains", lead, blocks)


def _curves(runs: Sequence[Run]) -> Section:
    charts = [training_curves(run, stem("curves", place, run)) for place, run in enumerate(runs, 1)]
    lead = (
        "Good training lifts the pseudo-label accuracy, and with certainty λ grows: more of the unlabeled image enters."
    )
    return Section("curves", "Training curves", lead, [ChartBlock(c.name, c) for c in charts if c])


def _maps(runs: Sequence[Run], told: Told) -> Section:
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Run]] = {}
    for run in runs:
        groups.setdefault((tuple(run.classes), tuple(training_domains(run))), []).append(run)
    charts = [feature_maps(group, f"features-{place}", told) for place, group in enumerate(groups.values(), 1)]
    lead = (
        "Domain-invariant features gather by colour, not by shape: prototypes of one class from all domains meet."
        " Distances between far groups mean nothing in t-SNE."
    )
    return Section("features", "Features and prototypes", lead, [ChartBlock(c.name, c) for c in charts if c])


def _pairs(runs: Sequence[Run]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        for moment in ("first", "last"):
            pairs = training_pairs(run, moment)
            if pairs:
                title = f"{run.name}, epoch {run.epoch_of(moment)}"
                name = stem(f"pairs-{moment}", place, run)
                blocks.append(PairsBlock(name, pairs, pairs_chart(pairs, name, title)))
    lead = (
        "An unlabeled image is mixed into a labeled one of the class that its pseudo-label names; λ is the unlabeled "
        "image's share. An uncertain pseudo-label (large ε, in nats) gets a small λ, so that a wrong one does little "
        "harm. The pairs are drawn at random; their true classes, where known, are for this page only."
    )
    return Section("pairs", "Training pairs", lead, blocks)


def _gallery(runs: Sequence[Run]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        found = certain_and_not(run)
        if found:
            name = stem("certain", place, run)
            blocks.append(GalleryBlock(name, found, gallery_chart(found, name, run.name)))
    lead = (
        "At the last epoch, ranked by the pseudo-label's uncertainty ε (in nats); where a method makes no "
        "pseudo-labels, and on the unseen domain, by the confidence p. A wrong image among the most "
        "certain ones is worth a look."
    )
    return Section("certain", "Most and least certain images", lead, blocks)


def _confusion(runs: Sequence[Run]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        chart = confusion_chart(run, stem("confusion", place, run))
        if chart is None:
            continue
        blocks.append(ChartBlock(chart.name, chart))
        key, text = measured_sets(run)[-1]
        rows = most_confused(confusion(run, key), run.classes)
        table = PlainTable(
            f"Most frequent confusions of {run.name}, {text}", ["true class", "answer", "images", "of the class"], rows
        )
        blocks += _tables(stem("confused", place, run), [table])
    return Section("confusion", "Where it errs", "", blocks)


def _reliability(runs: Sequence[Run]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        chart = reliability_chart(run, stem("reliability", place, run))
        if chart is not None:
            blocks.append(ChartBlock(chart.name, chart))
    if blocks:
        blocks += _tables("calibration", [calibration_table(runs)])
    lead = "A model that is 80\u00a0% sure should be right four times in five. Away from its source it usually is not."
    return Section("reliability", "Can its confidence be believed?", lead, blocks)
