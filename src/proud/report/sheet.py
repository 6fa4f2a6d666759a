"""Images to label, as one self-contained page beside its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from proud.files import replacing
from proud.report.figures.pictures import ListedImage
from proud.report.page import picture_uri, template
from proud.text import printable


def write_sheet(out: Path, sites: Mapping[str, Sequence[ListedImage]], command: str, lead: str) -> None:
    """The page alone."""
    with replacing(out) as part:
        part.write_bytes(sheet_bytes(sites, command, lead))


def sheet_bytes(sites: Mapping[str, Sequence[ListedImage]], command: str, lead: str) -> bytes:
    """`command`: that which wrote the table; `lead`: what to do with it."""
    count = sum(map(len, sites.values()))
    title = "1 image to label" if count == 1 else f"{count} images to label"
    context = {"title": title, "command": command, "lead": lead, "sites": sites, "picture": picture_uri}
    return printable(template("sheet.html").render(context)).encode()
