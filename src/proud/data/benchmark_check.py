"""`proud data check`: a benchmark's images counted against the published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proud.data.benchmarks import Benchmark, find_split_lists, listed_images, locate, named, read_domain
from proud.data.catalog import DomainFiles
from proud.data.walk import Walk
from proud.errors import UserError


@dataclass(frozen=True)
class CheckRow:
    """`domain` also names the part, as in `photo train`. `status` is "ok" or the problem."""

    domain: str
    found: int
    expected: int
    status: str


@dataclass(frozen=True)
class CheckResult:
    rows: list[CheckRow]
    advice: str

    @property
    def ok(self) -> bool:
        return all(row.status == "ok" for row in self.rows)


def check(name: str, root: Path | str) -> CheckResult:
    """Count a benchmark's images against the published numbers."""
    benchmark, top = named(name), Path(root)
    if not top.is_dir():
        raise UserError(f"There is no folder {top}")
    walk = Walk(top)
    folders = locate(benchmark, walk)
    rows: list[CheckRow] = []
    lists = find_split_lists(folders, walk) if benchmark.name == "pacs" and folders else {}
    for domain, counts in benchmark.counts.items():
        if domain not in folders:
            rows.append(CheckRow(domain, 0, sum(counts), "missing"))
            continue
        files = read_domain(domain, folders[domain], walk)
        rows.append(_total_row(benchmark, domain, files, top))
        if len(counts) == 2:
            listed = {split: listed_images(domain, folders[domain], at) for split, at in lists.get(domain, {}).items()}
            rows += _split_rows(domain, files, listed, counts)
    return CheckResult(rows, _advice(benchmark, top, rows))


def _total_row(benchmark: Benchmark, domain: str, files: DomainFiles, root: Path) -> CheckRow:
    expected = sum(benchmark.counts[domain])
    classes = {entry.label for entry in files.entries if entry.label is not None}
    empty = sum((root / entry.location).stat().st_size == 0 for entry in files.entries)
    if empty:
        status = f"{empty} empty files"
    elif len(classes) != benchmark.classes:
        status = f"{len(classes)} classes instead of {benchmark.classes}"
    else:
        status = _status(len(files.entries), expected)
    return CheckRow(domain, len(files.entries), expected, status)


def _split_rows(
    domain: str, files: DomainFiles, listed: dict[str, list[Path]], counts: tuple[int, ...]
) -> list[CheckRow]:
    rows = []
    for split, expected in zip(("train", "val"), counts, strict=True):
        named = len(listed[split]) if listed else sum(entry.split == split for entry in files.entries)
        there = sum(image.is_file() for image in listed[split]) if listed else named
        status = _status(named, expected) if there == named else f"{named - there} that the list names are not there"
        rows.append(CheckRow(f"{domain} {split}", there, expected, status))
    if all(row.status == "missing" for row in rows):
        return [CheckRow(f"{domain} split", 0, sum(counts), "missing")]
    return rows


def _status(found: int, expected: int) -> str:
    if found == expected:
        return "ok"
    if found == 0:
        return "missing"
    return f"{expected - found} too few" if found < expected else f"{found - expected} too many"


def _advice(benchmark: Benchmark, root: Path, rows: list[CheckRow]) -> str:
    wrong = [f"{row.domain}: {row.status}" for row in rows if row.status != "ok"]
    if not wrong:
        return f"{benchmark.name} in {root} is complete.\n{benchmark.origin}"
    lines = [f"{benchmark.name} in {root} differs from the published set. {'; '.join(wrong)}."]
    unsplit = [row.domain.removesuffix(" split") for row in rows if row.domain.endswith(" split")]
    if benchmark.name == "pacs" and len(unsplit) == len(benchmark.counts):
        lines.append("Without the official split lists one image in ten is held out by content hash.")
    elif unsplit:
        lines.append(
            f"Training needs a split of all domains or, for PACS, of none; there is none of {', '.join(unsplit)}."
        )
    return "\n".join([*lines, f"Expected layout: {benchmark.layout}.", benchmark.origin])
