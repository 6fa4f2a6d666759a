"""`proud data check`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from rich.markup import escape
from rich.table import Table

from proud.cli.flags.data import DataArguments
from proud.cli.show import console, show_plain
from proud.config import DomainSpec, ReadSpec, check
from proud.data.benchmark_check import check as check_benchmark
from proud.data.benchmarks import find_benchmark
from proud.data.decode import first_bad_files
from proud.data.site_check import DataReport, Level, check_data
from proud.data.site_report import SiteReport
from proud.errors import UserError

WORDS: dict[Level, str] = {"refused": "[bold red]Refused:[/]", "warning": "[yellow]Warning:[/]", "note": "Note:"}
MOST_CLASSES, MOST_SITES = 30, 8  # in the table of classes


def run(arguments: DataArguments) -> int:
    check(arguments)
    if find_benchmark(arguments.name) is not None and (arguments.root or not Path(arguments.name).exists()):
        return run_benchmark(arguments)
    reading = ReadSpec(
        skip_bad=arguments.skip_bad, follow_links=arguments.follow_links, max_pixels=arguments.max_pixels
    )
    spec = DomainSpec(arguments.name, arguments.root, arguments.labeled, arguments.test)
    report = check_data(spec, reading, progress=True)
    show_sites(report)
    show_classes(report)
    if report.bad:
        show_plain(f"Unreadable:\n{first_bad_files(report.bad)}")
    for finding in report.findings:
        console.print(f"{WORDS[finding.level]} {escape(finding.text)}", soft_wrap=True, highlight=False)
    show_next(report, arguments)
    return report.exit_code


def run_benchmark(arguments: DataArguments) -> int:
    if not arguments.root:
        raise UserError(f"Name the folder of {arguments.name}: --root DIR.")
    report = check_benchmark(arguments.name, arguments.root)
    table = Table(title=escape(arguments.name), title_justify="left")
    for column in ("domain", "found", "expected", "status"):
        table.add_column(column, justify="left" if column in ("domain", "status") else "right")
    for row in report.rows:
        table.add_row(escape(row.domain), str(row.found), str(row.expected), escape(row.status))
    console.print(table)
    console.print(escape(report.advice))
    return 0 if report.ok else 1


def show_sites(report: DataReport) -> None:
    table = Table(title=escape(report.where), title_justify="left")
    table.add_column("domain", overflow="fold")
    for column in ("images", "classes", "pixels", "formats", "unreadable", "copies", "may be labeled"):
        table.add_column(column, justify="right" if column in ("images", "unreadable", "copies") else "left")
    for site in report.sites:
        table.add_row(*map(escape, cells(site)))
    console.print(table)


def cells(site: SiteReport) -> list[str]:
    bad = len(site.seen) - len(site.good)
    counts = [len(site.seen), len(site.classes), site.sides, site.kinds, bad, site.copies]
    return [site.name, *map(str, counts), f"no: {site.can_be_labeled}" if site.can_be_labeled else "yes"]


def show_classes(report: DataReport) -> None:
    """Images per class and domain; a class that is missing somewhere, or spelled in two ways, shows here."""
    sites = [site for site in report.sites if site.classes][:MOST_SITES]
    names = sorted(set().union(*(site.classes for site in sites)))
    if not names:
        return
    table = Table(title="images per class", title_justify="left")
    table.add_column("class")
    for site in sites:
        table.add_column(escape(site.name), justify="right")
    for name in names[:MOST_CLASSES]:
        table.add_row(escape(name), *(str(site.classes[name] or "–") for site in sites))
    if len(names) > MOST_CLASSES:
        table.add_row(f"… {len(names) - MOST_CLASSES} more")
    console.print(table)


def show_next(report: DataReport, arguments: DataArguments) -> None:
    """A command that would work."""
    suited = [site.name for site in report.sites if not site.can_be_labeled]
    plain = [name for name in suited if name not in report.nested]
    labeled = arguments.labeled or next(iter(plain or suited), None)
    if report.exit_code < 2 and not arguments.labeled and suited and not plain:
        show_plain(f"Next, if {suited[0]} holds sites: proud data check {quote(str(Path(report.where) / suited[0]))}")
    elif report.exit_code < 2 and labeled is not None:
        domains = f"--labeled {quote(labeled)} --test {quote(arguments.test)}"
        show_plain(f"Next: proud train --data {quote(report.where)} {domains} --out runs/x")
