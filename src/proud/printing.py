"""The one way to a terminal. Names and texts may come from strangers: control characters are shown as escapes, so that
none of them reaches the terminal, and what is too long to be read is cut."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from proud.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

LONGEST_LINE = 4_000
MOST_LINES = 5_000


def shown(text: str) -> str:
    """The text as it may be printed: without control characters, lines and their number bounded."""
    lines = text[: LONGEST_LINE * MOST_LINES].split("\n", MOST_LINES)
    cut = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines[:MOST_LINES]]
    return printable("\n".join([*cut, "…"] if len(lines) > MOST_LINES else cut))


def write(text: str, stream: TextIO | None = None) -> None:
    """One line to the standard output, or to another stream."""
    print(shown(text), file=stream or sys.stdout)


class DataOutput:
    """The standard output for data in place of messages: whole, and unchanged unless a person looks at it."""

    def write(self, text: str) -> int:
        return sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


def make_console(stderr: bool = False) -> Console:
    """A console of rich that shows everything so, whether it is printed, in a table or in a live display."""
    return _safe_console()(stderr=stderr)


@cache
def _safe_console() -> type[Console]:
    """Made at first use: help does without rich."""
    from rich.console import Console  # noqa: PLC0415
    from rich.segment import Segment  # noqa: PLC0415

    class SafeConsole(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(shown(text), **options)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(shown(segment.text), segment.style)

    return SafeConsole
