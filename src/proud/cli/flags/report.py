"""Flags of `proud report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from proud.config import Switch, value


@dataclass(frozen=True)
class ReportArguments:
    """Write one HTML page about runs and benches: data, results beside the published rows, training curves, t-SNE of
    features and prototypes, training pairs, confusion, reliability. The page is self-contained; every figure is also
    written as PNG and PDF, every table as LaTeX and CSV."""

    sources: Annotated[Positional[tuple[Path, ...]], value("RUN|BENCH ...", "(required)")] = ()
    """run folders, folders of run folders, bench folders, results.jsonl files"""
    out: Annotated[Path, value("FILE")] = Path("report.html")
    """page to write; figures and tables are written to a folder beside it (report_files for report.html)"""
    overwrite: Switch = False
    """replace an earlier report"""
