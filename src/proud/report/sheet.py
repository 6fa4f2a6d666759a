"""The images that `proud label-next` suggests, as one self-contained page beside its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from proud.files import replacing
from proud.report.figures.pictures import ListedImage
from proud.report.page import picture_uri, template
from proud.text import printable


def write_sheet(out: Path, table: str, sites: Mapping[str, Sequence[ListedImage]]) -> None:
    """`table`: the name of the table to fill in."""
    count = sum(map(len, sites.values()))
    lead = f"In the order of their value. Labels go into the column label of {table}; the guesses are the model's."
    context = {"title": f"{count} images to label", "lead": lead, "sites": sites, "picture": picture_uri}
    text = template("sheet.html").render(context)
    with replacing(out) as part:
        part.write_text(printable(text), encoding="utf-8")
