"""What the site adds to plain Markdown pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _extension import mathematics
from _extension.contents import with_contents

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    mathematics.setup(app)
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read_source(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = with_contents(page, source[0])
