"""What several commands print: warnings, verdicts, and plain text of any content."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from proud.cli.exit import is_closed
from proud.errors import UserError
from proud.files import is_stdout
from proud.model.format import read_verdicts
from proud.printing import make_console

console = make_console()


@contextmanager
def messages_for(out: Path | str) -> Iterator[None]:
    """Messages go to stderr if the result goes to stdout."""
    if is_stdout(out) and is_closed(sys.stdout):
        raise UserError("--out -: stdout is closed. Name a file.")
    before, console.stderr = console.stderr, is_stdout(out)
    try:
        yield
    finally:
        console.stderr = before


def show_plain(text: str) -> None:
    """File names may hold anything."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def unreadable(count: int) -> str:
    return "1 unreadable image" if count == 1 else f"{count} unreadable images"


def show_warning(text: str) -> None:
    if text:
        console.print(f"[bold red]Warning:[/bold red] {escape(text)}", soft_wrap=True)


def show_sites(folder: Path) -> None:
    """The verdict on each unlabeled domain, and how to label a few of its images."""
    sites = read_verdicts(folder)
    for site in sites:
        console.print(escape(site["text"]), soft_wrap=True)
    if any(site["verdict"] != "sound" for site in sites):
        console.print(
            f"diagnosis.json lists the images to look at; a few labels may help: [bold]proud label-next "
            f"{escape(shlex.quote(str(folder)))} --out {unused_name()}[/bold]",
            soft_wrap=True,
        )


def unused_name() -> str:
    """A file name that does not exist yet: the labels of an earlier round may be in one."""
    name, number = "extra.csv", 1
    while os.path.lexists(name):
        number += 1
        name = f"extra-{number}.csv"
    return name
