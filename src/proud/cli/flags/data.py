"""Flags of `proud data`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional

from proud.config import MAX_PIXELS, NOTHING, Count, Switch, value


@dataclass(frozen=True)
class DataArguments:
    """Check images before training: sites, classes, sizes, copies, unreadable files, what would be skipped or slow.
    Exit code 0: fine; 1: training would warn; 2: it would refuse. For a public benchmark (with --root), the images are
    counted against the published numbers."""

    action: Annotated[Positional[Literal["check"]], value("check")]
    """read every image"""
    name: Annotated[Positional[str], value("DATA")]
    """your folder ROOT/<domain>/<class>/* or CSV file; or digits-dg, pacs, office-home, wbc, rsscn7"""
    root: Annotated[str, value("DIR", "(for benchmarks only)")] = ""
    """folder of a named benchmark"""
    labeled: Annotated[str, value("SITE", "(optional)")] = ""
    """also check that this domain can be the labeled one"""
    test: Annotated[str, value("SITE")] = NOTHING
    """and this one the test domain"""
    skip_bad: Switch = False
    """as in train: unreadable images will be skipped"""
    follow_links: Switch = False
    """also read images behind symbolic links that lead out of the data folder"""
    max_pixels: Annotated[Count, value("MILLIONS")] = MAX_PIXELS
    """largest image that is read, in millions of pixels"""
