"""How flags are parsed, and those that several commands share."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from proud.config import MAX_PIXELS, Count, Switch, value

CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
Device = Annotated[str, value("auto|cpu|cuda|cuda:N")]
RunFolder = Annotated[Positional[Path], value("RUN")]
Data = Annotated[str, value("DATA", "(default: the run's own data)")]
Root = Annotated[str, value("DIR", "(for benchmarks only)")]
WIDEST = 100


def parse(kind: Any, argv: list[str], command: str, description: str, default: Any = None) -> Any:
    """Flags from a dataclass, all on one level."""
    extra = {} if default is None else {"default": default}
    with narrow() as width:
        text = textwrap.fill(description, width, initial_indent=" ", subsequent_indent=" ")  # tyro joins other lines
        return tyro.cli(kind, args=argv, prog=f"proud {command}", description=text, config=CONFIG, **extra)


@contextmanager
def narrow() -> Iterator[int]:
    """Help is at most 100 columns wide, on any terminal."""
    before, width = os.environ.get("COLUMNS"), min(WIDEST, shutil.get_terminal_size().columns)
    os.environ["COLUMNS"] = str(width)
    try:
        yield width
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


@dataclass(frozen=True, kw_only=True)
class WithModel:
    """Flags of all commands that use a saved model."""

    device: Device = "auto"
    """where to compute"""
    skip_bad: Switch = False
    """skip unreadable images instead of stopping"""


@dataclass(frozen=True, kw_only=True)
class WithFiles(WithModel):
    """Flags of commands that read image files for a saved model."""

    follow_links: Switch = False
    """also read images behind symbolic links that lead out of a folder"""
    max_pixels: Annotated[Count, value("MILLIONS")] = MAX_PIXELS
    """largest image that is read, in millions of pixels"""


@dataclass(frozen=True, kw_only=True)
class WithData:
    """Flags of commands that use the run's own data, or other data."""

    data: Data = ""
    """folder, CSV file, benchmark or `embedded`"""
    root: Root = ""
    """folder of a named benchmark"""


@dataclass(frozen=True, kw_only=True)
class WithAnswers:
    """Flags of prediction sets and abstention: both are guaranteed on new images of the labeled domain only."""

    coverage: float = 0.9
    """share of prediction sets that contain the true class, on new images of the labeled domain"""
    risk: float = 0.05
    """abstain so that at most this share of the answers is wrong, on new images of the labeled domain"""
    sets: Literal["lac", "aps"] = "lac"
    """kind of prediction sets: the smallest (lac), or adaptive to each image (aps)"""


@dataclass(frozen=True, kw_only=True)
class WithServer:
    """Flags of commands that listen on a port."""

    host: Annotated[str, value("ADDRESS")] = "127.0.0.1"
    """address to listen on; 127.0.0.1 can be reached from this machine only"""
