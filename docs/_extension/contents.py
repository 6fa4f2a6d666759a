"""The sidebar follows from links: the index.md of a folder links to each of its pages, in the order of the sidebar.

A page that its index does not link to is an error of the build.
"""

from __future__ import annotations

import re

LINK = re.compile(r"\]\(([\w-]+)\.md\)")
PART = re.compile(r"\]\(([\w-]+/index)\.md\)")


def with_contents(page: str, text: str) -> str:
    """The text of an index with a hidden table of its contents."""
    if page.rpartition("/")[2] != "index":
        return text
    pages = dict.fromkeys((PART if page == "index" else LINK).findall(text))
    return "\n".join([text, "", "```{toctree}", ":hidden:", "", *pages, "```", ""]) if pages else text
