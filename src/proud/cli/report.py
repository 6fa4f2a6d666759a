"""`proud report`."""

from __future__ import annotations

from rich.markup import escape

from proud.cli.flags.report import ReportArguments
from proud.cli.show import console
from proud.errors import UserError
from proud.files import refuse_stdout
from proud.report.page import write_report


def run(arguments: ReportArguments) -> int:
    if not arguments.sources:
        raise UserError("Name the runs or benches to report on: proud report RUN … --out report.html")
    refuse_stdout(arguments.out, "a report")
    with console.status("reading") as status:
        out = write_report(
            arguments.sources,
            arguments.out,
            overwrite=arguments.overwrite,
            progress=lambda text: status.update(f"report: {escape(text)}"),
        )
    files = out.with_name(f"{out.stem}_files")
    console.print(f"Report: [bold]{escape(str(out))}[/bold]; figures and tables: {escape(str(files))}", soft_wrap=True)
    return 0
