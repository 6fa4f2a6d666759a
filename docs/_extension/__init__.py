"""What the site adds to plain Markdown pages: a sidebar, formulas, and the parts that are made from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sphinx.util import logging

from _extension import mathematics
from _extension.contents import with_contents
from _extension.files import unexplained
from _extension.generated import with_generated
from _extension.python_api import undocumented

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LOG = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    mathematics.setup(app)
    app.connect("builder-inited", check)
    app.connect("source-read", read_source)
    app.connect("autodoc-process-signature", without_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def check(app: Sphinx) -> None:
    for problem in (*undocumented(), *unexplained()):
        LOG.warning(problem)


def without_constructor(app: Sphinx, kind: str, name: str, *_: Any) -> tuple[str, None] | None:
    """Of classes that users get and never make."""
    return ("", None) if kind == "class" and name == "proud.model.predict.Model" else None


def read_source(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = with_contents(page, with_generated(source[0]))
