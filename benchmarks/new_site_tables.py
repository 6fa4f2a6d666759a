"""The tables of docs/guide/new-site.md as Markdown, from results files; `benchmarks/docs_tables.py` fills them in."""

from __future__ import annotations

from typing import Any

from table_text import source, table

BATCHES = {"16": "16", "64": "64", "256": "256", "whole": "whole", "balanced": "whole, mean of the classes"}
BATCHES |= {"skewed": "1 : 10"}
METHODS = ("statistics", "t3a", "adapt")


def sourced(name: str, result: dict[str, Any]) -> str:
    return f"\n{result['data']}.{source(name, result)}"


def adapt_table(name: str, result: dict[str, Any]) -> str:
    """Per run and size of the batch: plain accuracy, and what each method adds to it."""
    rows = []
    for row in result["rows"]:
        for size, shown in BATCHES.items():
            found = row.get(size)
            if found is None:
                continue
            gains = [
                f"{found[each] - found['plain']:+.1f}".replace("-", "−") if each in found else "–" for each in METHODS
            ]
            title = f"{row['labeled']} → {row['test']}, {row['method']}"
            rows.append([title, shown, f"{found['plain']:.1f}", *gains])
    header = ["labeled → new site, method", "images together", "plain, %", "batch statistics", "T3A", "`--adapt`"]
    return table(header, rows) + sourced(name, result)


def time_table(name: str, result: dict[str, Any]) -> str:
    """What adapting costs beside plain prediction."""

    def row(title: str, key: str, digits: int = 0) -> list[str]:
        plain, adapted = (result[each][key] for each in ("plain", "adapted"))
        return [title, f"{plain:,.{digits}f}", f"{adapted:,.{digits}f}", f"{adapted / plain:.2f}"]

    rows = [
        row("CPU time, s", "cpu_s"),
        row("wall time, s", "wall_s"),
        row("CPU time per image, ms", "cpu_ms", 1),
        row("peak of the memory, MB", "peak_mb"),
    ]
    about = (
        f"\n{result['data']}: {result['images']:,} images of {result['size']} px, {result['network']}, "
        f"{result['threads']} of {result['cores']} cores for the network.\n"
    )
    return table(["", "`proud predict`", "with `--adapt`", "times"], rows) + about + source(name, result)


def compare_table(result: dict[str, Any]) -> str:

    def title(row: dict[str, Any]) -> str:
        first, second = row["first"], row["second"]
        return f"{first['labeled']} → {first['test']}: {first['method']} against {second['method']}"

    rows = [
        [
            title(row),
            f"{row['disagreements']} of {row['images']}",
            str(row["labels"]),
            f"{row['difference']:+.1f}",
            f"{row['mean_width']:.1f}",
            f"{100 * row['holds']:.1f} %",
            f"{100 * row['named']:.1f} %",
            f"{100 * row['wrong']:.1f} %",
        ]
        for row in result["rows"]
    ]
    header = [
        "site, models",
        "disagreements",
        "labels",
        "true difference, points",
        "mean width",
        "interval holds",
        "better one named",
        "worse one named",
    ]
    return table(header, rows) + f"\n{result['draws']:,} draws each. " + sourced("compare.json", result).lstrip()


def later_table(name: str, result: dict[str, Any]) -> str:
    def cell(found: dict[str, Any]) -> str:
        return f"{found['accuracy']:.1f} %, {found['seconds']:.0f} s"

    rows = [
        [row["cell"], row["added"], *(cell(row[key]) for key in ("without", "from_nothing", "from_model"))]
        for row in result["rows"]
    ]
    header = ["labeled:test", "added site", "without it", "all sites, from nothing", "`--from` and `--add`"]
    return table(header, rows) + sourced(name, result)


def pool_table(name: str, result: dict[str, Any]) -> str:
    rows = [
        [
            row["cell"],
            f"{row['true']['accuracy']:.1f} % ({len(row['sites'])})",
            f"{row['found']['accuracy']:.1f} % ({row['found']['sites']})",
            f"{row['one']['accuracy']:.1f} %",
            "–" if row["purity"] is None else f"{100 * row['purity']:.0f} %",
        ]
        for row in result["rows"]
    ]
    header = ["labeled:test", "true sites", "found sites", "one pool", "images in the site of most of their kind"]
    return table(header, rows) + sourced(name, result)
