"""The content of the page as data: sections of tables, charts and images, in reading order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from proud.report.class_tables import recall_tables, scores_table
from proud.report.figures.curves import training_curves
from proud.report.figures.evaluation import confusion, confusion_chart, measured_sets, most_confused, reliability_chart
from proud.report.figures.maps import feature_maps, training_domains
from proud.report.figures.pictures import (
    Gallery,
    ListedImage,
    Pair,
    gallery_chart,
    most_and_least_certain,
    pairs_chart,
    training_pairs,
)
from proud.report.figures.style import Chart
from proud.report.formats import PlainTable, cells_of, csv_text, heads_of, latex
from proud.report.run_tables import (
    calibration_table,
    comparison_table,
    domain_tables,
    look_at_tables,
    published_table,
    runs_table,
    settings_table,
    site_tables,
)
from proud.report.sources import BenchSource, RunSource
from proud.report.tables import make_tables


@dataclass(frozen=True)
class TableBlock:
    """`files`: suffix → text. `folded`: collapsed until clicked."""

    name: str
    table: PlainTable
    files: dict[str, str]
    folded: bool = False
    images: Sequence[ListedImage] = ()
    """shown in place of the table"""
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class ChartBlock:
    name: str
    chart: Chart
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True)
class PairsBlock:
    """`chart` is the same content for the files."""

    name: str
    pairs: Sequence[Pair]
    chart: Chart
    kind: Literal["pairs"] = "pairs"


@dataclass(frozen=True)
class GalleryBlock:
    name: str
    domains: Gallery
    chart: Chart
    kind: Literal["gallery"] = "gallery"


Block = TableBlock | ChartBlock | PairsBlock | GalleryBlock


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


def make_sections(
    runs: Sequence[RunSource],
    benches: Sequence[BenchSource],
    progress: Callable[[str], None],
    more_results: Sequence[PlainTable] = (),
) -> list[Section]:
    """Empty sections are left out."""
    progress("tables and curves")
    results = [*_run_results(runs), *_tables("more", more_results), *_bench_results(benches)]
    sections = [
        Section("data", "Data", "", [*_tables("domains", domain_tables(runs))]),
        Section("results", "Results", "", results),
        Section(
            "classes",
            "Classes",
            "",
            [*_tables("scores", [scores_table(runs)]), *_tables("recall", recall_tables(runs))],
        ),
        _sites(runs),
        _curves(runs),
        _maps(runs, progress),
        _pairs(runs),
        _gallery(runs),
        _confusion(runs),
        _reliability(runs),
        Section("settings", "Settings", "", [*_tables("settings", settings_table(runs), folded=True)]),
    ]
    return [section for section in sections if section.blocks]


def stem(name: str, place: int, run: RunSource) -> str:
    """A file name that is unique per run and safe for any run name."""
    return f"{name}-{place}-{re.sub(r'[^A-Za-z0-9]+', '-', run.name).strip('-')[:40]}".rstrip("-").lower()


def _tables(name: str, tables: Iterable[PlainTable | None], folded: bool = False) -> list[Block]:
    kept = [table for table in tables if table is not None and table.rows]
    return [
        TableBlock(f"{name}-{place}", table, {"csv": table.csv(), "tex": table.latex()}, folded)
        for place, table in enumerate(kept, 1)
    ]


def _run_results(runs: Sequence[RunSource]) -> list[Block]:
    tables = _tables("runs", [runs_table(runs)]) + _tables("comparison", [comparison_table(runs)])
    return tables + _tables("published", published_table(runs))


def _bench_results(benches: Sequence[BenchSource]) -> list[Block]:
    blocks: list[Block] = []
    for bench in benches:
        tables = make_tables(bench.name, bench.rows)
        for place, table in enumerate(tables, 1):
            ours = frozenset(row for row, line in enumerate(table.lines) if table.compared and not line.published)
            rows = [cells_of(table, line) for line in table.lines]
            shown = PlainTable(table.title, heads_of(table), rows, "\n".join(table.footer), ours)
            name = re.sub(r"[^A-Za-z0-9]+", "-", bench.name).strip("-").lower() or "bench"
            blocks.append(TableBlock(f"table-{name}-{place}", shown, {"csv": csv_text([table]), "tex": latex(table)}))
    return blocks


def _sites(runs: Sequence[RunSource]) -> Section:
    lead = "Quality of the pseudo-labels of each unlabeled domain, estimated without its true labels."
    return Section("sites", "Unlabeled domains", lead, [*_tables("sites", site_tables(runs)), *_look_at(runs)])


def _look_at(runs: Sequence[RunSource]) -> list[Block]:
    return [
        TableBlock(f"look-at-{place}", table, {"csv": table.csv(), "tex": table.latex()}, images=images)
        for place, (table, images) in enumerate(look_at_tables(runs), 1)
    ]


def _curves(runs: Sequence[RunSource]) -> Section:
    charts = [training_curves(run, stem("curves", place, run)) for place, run in enumerate(runs, 1)]
    lead = (
        "In successful training, pseudo-label accuracy rises and uncertainty falls. With mixing by uncertainty, λ then "
        "grows: mixed images contain more of the unlabeled image."
    )
    return Section("curves", "Training curves", lead, [ChartBlock(chart.name, chart) for chart in charts])


def _maps(runs: Sequence[RunSource], progress: Callable[[str], None]) -> Section:
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[RunSource]] = {}
    for run in runs:
        groups.setdefault((tuple(run.classes), tuple(training_domains(run))), []).append(run)
    charts = [feature_maps(group, f"features-{place}", progress) for place, group in enumerate(groups.values(), 1)]
    lead = (
        "Domain-invariant features cluster by colour, not by shape: the prototypes of a class coincide across domains. "
        "Distances between distant clusters are not meaningful in t-SNE."
    )
    blocks = [ChartBlock(chart.name, chart) for chart in charts if chart is not None]
    return Section("features", "Features and prototypes", lead, blocks)


def _pairs(runs: Sequence[RunSource]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        for moment in ("first", "last"):
            pairs = training_pairs(run, moment)
            if pairs:
                title = f"{run.name}, epoch {run.epoch_of(moment)}"
                name = stem(f"pairs-{moment}", place, run)
                blocks.append(PairsBlock(name, pairs, pairs_chart(pairs, name, title)))
    lead = (
        "An unlabeled image is mixed with a labeled image of the class of its pseudo-label; λ is the weight of the "
        "unlabeled image. With mixing by uncertainty, an uncertain pseudo-label (large ε, in nats) gets a small λ, so "
        "that a wrong one does little harm; otherwise λ is random. The pairs are drawn at random; true classes, where "
        "known, are used on this page only."
    )
    return Section("pairs", "Training pairs", lead, blocks)


def _gallery(runs: Sequence[RunSource]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        gallery = most_and_least_certain(run)
        if gallery:
            name = stem("certain", place, run)
            blocks.append(GalleryBlock(name, gallery, gallery_chart(gallery, name, run.name)))
    lead = (
        "At the last epoch, ranked by the uncertainty ε of the pseudo-label (in nats), or by the confidence p on the "
        "unseen domain and for methods without pseudo-labels. Errors among the most certain images deserve attention."
    )
    return Section("certain", "Most and least certain images", lead, blocks)


def _confusion(runs: Sequence[RunSource]) -> Section:
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
    return Section("confusion", "Confusion matrices", "", blocks)


def _reliability(runs: Sequence[RunSource]) -> Section:
    blocks: list[Block] = []
    for place, run in enumerate(runs, 1):
        chart = reliability_chart(run, stem("reliability", place, run))
        if chart is not None:
            blocks.append(ChartBlock(chart.name, chart))
    if blocks:
        blocks += _tables("calibration", [calibration_table(runs)])
    lead = (
        "Predictions with 80\u00a0% confidence should be right 80\u00a0% of the time. Away from the source domain they "
        "usually are not."
    )
    return Section("reliability", "Calibration", lead, blocks)
