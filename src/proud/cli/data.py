"""`proud data check`."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from proud.cli.flags.data import DataArguments
from proud.cli.show import console
from proud.data.benchmark_check import check
from proud.data.benchmarks import BENCHMARKS, find_benchmark
from proud.errors import UserError


def run(arguments: DataArguments) -> int:
    if not arguments.root:
        if find_benchmark(arguments.name) is None:
            raise UserError(f"`proud data check` is for {', '.join(BENCHMARKS)}; your own folders need no check.")
        raise UserError(f"Name the folder of {arguments.name}: --root DIR.")
    report = check(arguments.name, arguments.root)
    table = Table(title=escape(arguments.name), title_justify="left")
    for column in ("domain", "found", "expected", "status"):
        table.add_column(column, justify="left" if column in ("domain", "status") else "right")
    for row in report.rows:
        table.add_row(escape(row.domain), str(row.found), str(row.expected), escape(row.status))
    console.print(table)
    console.print(escape(report.advice))
    return 0 if report.ok else 1
