"""The table of docs/guide/data.md as Markdown, from a results file; `benchmarks/docs_tables.py` fills it in."""

from __future__ import annotations

from typing import Any

from table_text import source, table


def near_copies_table(result: dict[str, Any]) -> str:
    """How many altered copies are recognised, by domain; and the pairs among the images as they are."""
    rows = {name: row for name, row in result["rows"].items() if name.startswith("PACS")}
    changes = list(next(iter(rows.values()))["found"])
    lines = [[change, *(f"{100 * row['found'][change]:.0f} %" for row in rows.values())] for change in changes] + [
        ["pairs found among all images as they are", *(str(row["pairs"]) for row in rows.values())]
    ]
    heads = ["recognised copies", *(f"{name.removeprefix('PACS ')} ({row['images']})" for name, row in rows.items())]
    digits = ", ".join(
        f"{name.removeprefix('Digits-DG ')} {row['pairs']}" for name, row in result["rows"].items() if name not in rows
    )
    time = result["time"]
    images, spectra, pairs = f"{time['images']:,}".replace(",", " "), time["signatures"], time["all_pairs"]
    words = (
        f"\nOn Digits-DG (rebuilt), whose images of 32 pixels are not compared, the pairs would be: {digits}. One "
        f"thread takes {spectra:.0f} s for the spectra of {images} images, and {pairs:.0f} s for all of their pairs.\n"
    )
    return table(heads, lines) + words + source("near_copies.json", result)
