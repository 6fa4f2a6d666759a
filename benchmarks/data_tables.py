"""The table of docs/guide/data.md as Markdown, from a results file; `benchmarks/docs_tables.py` fills it in."""

from __future__ import annotations

import re
from typing import Any

from table_text import source, table

SHOWN = (
    "JPEG, quality 20",
    "half the size",
    "15 % brighter",
    "grey",
    "shifted by 2%",
    "shifted by 5%",
    "cropped by 2%",
)
SHOWN += ("cropped by 5%", "mirrored")
"""rows of the page; the results file has all"""


def near_copies_table(result: dict[str, Any]) -> str:
    """How many altered copies are recognised, where fewest are; and the pairs among the images as they are."""
    rows = {name: row for name, row in result["rows"].items() if name.startswith("PACS")}
    ways = (list(rows.values()), [row["dct"] for row in rows.values()])
    lines = [
        [spaced(change), *(f"{100 * min(row['found'][change] for row in way):.0f} %" for way in ways)]
        for change in SHOWN
    ]
    lines.append(["pairs among all images as they are", *(pairs(dict(zip(rows, way, strict=True))) for way in ways)])
    digits = {name: row for name, row in result["rows"].items() if name not in rows}
    time = result["time"]
    images, spectra, every = f"{time['images']:,}", time["signatures"], time["all_pairs"]
    words = (
        "\nShare of altered copies that are recognised, in that domain of PACS where fewest are. On Digits-DG "
        f"(rebuilt), whose images of 32 pixels are not compared, the pairs would be {pairs(digits)}. One thread takes "
        f"{spectra:.0f} s for the spectra of {images} images, and {every:.0f} s for all of their pairs.\n"
    )
    heads = ["copies", "these spectra", "DCT hash, at most 10 of 63 bits differ"]
    return table(heads, lines) + words + source("near_copies.json", result)


def spaced(change: str) -> str:
    return re.sub(r"(?<=\d)%", " %", change)


def pairs(rows: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name.partition(' ')[2]} {row['pairs']}" for name, row in rows.items())
