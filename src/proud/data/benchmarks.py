"""Where data sets come from: the embedded one, a folder, a CSV file, or a public benchmark in its own layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from proud.data.catalog import Catalog, DomainFiles, scan_csv, scan_folder, some
from proud.data.embedded import embedded_catalog
from proud.data.layouts import (
    BENCHMARKS,
    Benchmark,
    find_benchmark,
    find_split_lists,
    listed_images,
    locate,
    read_domain,
    read_split_lists,
)
from proud.data.walk import Walk
from proud.errors import UserError

HELD_OUT = 0.1
"""PACS without its lists, and Office-Home: one image in ten is not trained on."""


def catalog_for(name_or_path: str | Path, root: Path | str | None = None) -> Catalog:
    """`embedded`, a benchmark's name (with `root`), a folder of domains, or a CSV file."""
    name = str(name_or_path)
    if name == "embedded":
        return embedded_catalog()
    benchmark = find_benchmark(name)
    if benchmark and root is not None:
        return benchmark_catalog(benchmark.name, root)
    path = Path(name_or_path)
    if benchmark and not path.is_dir():
        raise UserError(f"Where is {benchmark.name}? Name its folder: --root DIR. Layout: {benchmark.layout}")
    if benchmark and len(locate(benchmark, Walk(path))) == len(benchmark.counts):
        return benchmark_catalog(benchmark.name, path)
    if root is not None:
        raise UserError(f"There is no benchmark {name!r}. Those with a root are: {', '.join(BENCHMARKS)}")
    if path.suffix.lower() == ".csv" and not path.is_dir():
        return scan_csv(path)
    if path.is_file():
        raise UserError(f"{path} is neither a folder of domains nor a .csv file")
    if not path.exists():
        raise UserError(f"There is no folder or CSV file {name!r}. Built in is only: embedded")
    return scan_folder(path)


def benchmark_catalog(name: str, root: Path | str) -> Catalog:
    """All domains of a benchmark under their canonical names; a missing one is an error."""
    benchmark, top = _named(name), Path(root)
    walk = Walk(top)
    folders = locate(benchmark, walk)
    missing = [domain for domain in benchmark.counts if domain not in folders]
    if missing:
        links = f" Links that leave it are not followed: {some(walk.ignored_links)}." if walk.ignored_links else ""
        raise UserError(
            f"{benchmark.name} in {top} lacks {', '.join(missing)}.{links} Layout: {benchmark.layout}. "
            f"See: proud data check {benchmark.name} --root {top}"
        )
    lists = find_split_lists(folders, walk) if benchmark.name == "pacs" else {}
    domains: dict[str, DomainFiles] = {}
    for domain, folder in folders.items():
        if domain in lists:
            domains[domain] = read_split_lists(domain, folder, lists[domain], top)
        else:
            domains[domain] = read_domain(domain, folder, walk)
    unsplit = [domain for domain in domains if not domains[domain].ships_split]
    if unsplit and (len(unsplit) < len(domains) or benchmark.name == "digits-dg"):
        raise UserError(f"{benchmark.name} in {top}: no train/val split for {', '.join(unsplit)}. {benchmark.layout}")
    for split in () if unsplit else ("train", "val"):
        without = [
            name for name, domain in domains.items() if not any(entry.split == split for entry in domain.entries)
        ]
        if without:
            raise UserError(f"{benchmark.name} in {top}: no {split} images of {', '.join(without)}. {benchmark.layout}")
    return Catalog(benchmark.name, top, domains, held_out=HELD_OUT if unsplit else None, benchmark=True)


@dataclass(frozen=True)
class CheckRow:
    """`domain` also names the part, as in `photo train`. `status` is "ok" or says what is wrong."""

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
    """Count a benchmark's images against the canonical numbers; say what is missing and where it comes from."""
    benchmark, top = _named(name), Path(root)
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
        return f"{benchmark.name} in {root} is complete."
    lines = [f"{benchmark.name} in {root} differs from the canonical set. {'; '.join(wrong)}."]
    unsplit = [row.domain.removesuffix(" split") for row in rows if row.domain.endswith(" split")]
    if benchmark.name == "pacs" and len(unsplit) == len(benchmark.counts):
        lines.append("Without the official split lists one image in ten is held out by a rule of our own.")
    elif unsplit:
        lines.append(
            f"Training needs a split of all domains or, for PACS, of none; there is none of {', '.join(unsplit)}."
        )
    return "\n".join([*lines, f"Expected layout: {benchmark.layout}.", benchmark.origin])


def _named(name: str) -> Benchmark:
    benchmark = find_benchmark(name)
    if benchmark is None:
        raise UserError(f"There is no benchmark {name!r}. Known: {', '.join(BENCHMARKS)}")
    return benchmark
