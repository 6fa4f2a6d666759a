"""`proud report`: its flags, and what it does with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from proud.errors import UserError

DESCRIPTION = (
    "Write one HTML page about runs and benches: data, results beside the published rows, training curves, t-SNE of "
    "features and prototypes, training pairs, confusion, reliability. It needs no network; every figure is also "
    "written as PNG and PDF, every table as LaTeX and CSV."
)


@dataclass(frozen=True)
class ReportArguments:
    sources: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN|BENCH ...", help_behavior_hint="(required)")] = ()
    """folders of runs, folders that hold such folders, folders of benches, results.jsonl files"""
    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html")
    """page to write; figures and tables go to a folder beside it, FILE without its ending plus `_files`"""
    overwrite: FlagCreatePairsOff[bool] = False
    """replace an earlier report"""


def report_command(argv: list[str]) -> int:
    from proud.cli.main import parse

    return report(parse(ReportArguments, argv, "report", DESCRIPTION))


def report(arguments: ReportArguments) -> int:
    if not arguments.sources:
        raise UserError("Name the runs or benches to report on: proud report RUN … --out report.html")
    from rich.console import Console
    from rich.markup import escape

    from proud.report.page import write_report

    console = Console()
    with console.status("reading") as status:
        out = write_report(
            arguments.sources,
            arguments.out,
            overwrite=arguments.overwrite,
            told=lambda text: status.update(f"report: {escape(text)}"),
        )
    files = out.with_name(f"{out.stem}_files")
    console.print(f"Report: [bold]{escape(str(out))}[/bold]; figures and tables: {escape(str(files))}", soft_wrap=True)
    return 0
