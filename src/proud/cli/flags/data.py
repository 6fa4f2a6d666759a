"""Flags of `proud data`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional

from proud.config import value


@dataclass(frozen=True)
class DataArguments:
    """Compare the numbers of a benchmark's images with the published ones."""

    action: Annotated[Positional[Literal["check"]], value("check")]
    """count the images"""
    name: Annotated[Positional[str], value("BENCHMARK")]
    """digits-dg, pacs, office-home, wbc or rsscn7"""
    root: Annotated[str, value("DIR", "(required)")] = ""
    """folder of the benchmark"""
