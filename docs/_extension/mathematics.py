"""Formulas as MathML, which browsers show without JavaScript or a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils.nodes import Element, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"


def inline(writer: HTML5Translator, node: Element) -> None:
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise SkipNode


def block(writer: HTML5Translator, node: Element) -> None:
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode
