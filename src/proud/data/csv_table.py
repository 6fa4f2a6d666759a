"""CSV files with the columns path, domain, label: images of all domains, or labels for a few unlabeled images."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.errors import UserError
from proud.text import listed, nfc, plain_cell


def scan_csv(path: Path | str) -> Catalog:
    """Paths are relative to the table's folder."""
    table = Path(path)
    rows = read_table(table)
    base, inside = table.parent, _Inside(table.parent)
    problems: list[str] = []
    seen: dict[str, int] = {}
    entries: dict[str, list[Entry]] = {}
    for line, row in rows:
        location, domain, split = row["path"], nfc(row["domain"]), row.get("split") or None
        place = os.path.normpath(Path(inside.base, location))
        if not location or not domain:
            problems.append(f"line {line}: no {'path' if not location else 'domain'}")
        elif split not in (None, "train", "val"):
            problems.append(f"line {line}: split {split!r} is neither 'train' nor 'val' nor empty")
        elif place in seen:
            problems.append(f"line {line}: {location} is listed before, in line {seen[place]}")
        elif (there := inside.holds(base / location)) is False:
            problems.append(f"line {line}: {location} is outside the table's folder")
        elif not there:
            problems.append(f"line {line}: there is no file {location}")
        else:
            entries.setdefault(domain, []).append(
                Entry(location, nfc(row["label"]) or None, split, row.get("group", ""))
            )
        seen.setdefault(place, line)
    for domain, found in entries.items():
        if len({entry.split is None for entry in found}) > 1:
            problems.append(f"domain {domain}: some rows state a split and some do not")
    if problems:
        raise UserError(listed(problems, table))
    domains = {
        name: DomainFiles(name, tuple(sorted(entries[name], key=lambda entry: entry.location)))
        for name in sorted(entries)
    }
    return Catalog(table.stem, base, domains)


class LabelRow(NamedTuple):
    """One row of a table of added labels, with the columns that `proud label-next` writes."""

    line: int
    path: str
    domain: str
    label: str
    content: str
    guess: str = ""
    uncertainty: str = ""


def read_labels(path: Path | str) -> list[LabelRow]:
    """The rows whose label is filled in."""
    table = Path(path)
    return _with_labels(read_table(table), str(table))


def rows_of_labels(table: Any) -> list[LabelRow]:
    """The same from a DataFrame. Rows are counted from 1."""
    missing = [name for name in COLUMNS if name not in getattr(table, "columns", ())]
    if missing:
        raise UserError(f"labels must be a CSV file or DataFrame with the columns {', '.join(COLUMNS)}.")
    rows = []
    for line, row in enumerate(table.to_dict("records"), start=1):
        empty = {key for key, cell in row.items() if cell is None or cell != cell}  # NaN is an empty cell
        rows.append((line, {str(key): "" if key in empty else str(cell) for key, cell in row.items()}))
    return _with_labels(rows, "labels")


def _with_labels(rows: list[tuple[int, dict[str, str]]], where: str) -> list[LabelRow]:
    found = []
    for line, row in rows:
        cells = {name: plain_cell(value) for name, value in row.items()}
        cells |= {name: nfc(cells[name]) for name in ("domain", "label")}
        if cells["label"]:
            found.append(LabelRow(line, **{name: cells.get(name, "") for name in LabelRow._fields[1:]}))
    if not found:
        raise UserError(f"No label is filled in in {where}: write class names into its column label")
    return found


COLUMNS = ("path", "domain", "label")


def read_table(
    table: Path, may_be_empty: bool = False, needed: Sequence[str] = COLUMNS
) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) of every row; cells and column names are stripped. `needed`: columns that must be there."""
    if not table.is_file():
        raise UserError(f"There is no file {table}. Expected: a CSV file with the columns path, domain, label")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=separator(file.readline()))
            file.seek(0)
            columns = [(name or "").strip().lower() for name in reader.fieldnames or ()]
            missing = [name for name in needed if name not in columns]
            if missing:
                hint = " The columns must be separated by commas or semicolons." if len(columns) == 1 else ""
                raise UserError(
                    f"{table} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: its first line "
                    "must name path, domain and label (split and group are optional); it names "
                    f"{', '.join(columns) or 'nothing'}.{hint}"
                )
            reader.fieldnames = columns
            rows = [
                (reader.line_num, {name: (row[name] or "").strip() for name in columns if isinstance(name, str)})
                for row in reader
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} cannot be read as a CSV file in UTF-8: {error}") from error
    except OSError as error:
        raise UserError(f"{table} cannot be read: {error.strerror or error}") from error
    if not rows and not may_be_empty:
        raise UserError(f"{table} has no rows below its column names")
    return rows


def separator(header: str) -> str:
    """A comma, or the semicolon or tab with which spreadsheets separate columns in many countries."""
    return max(",;\t", key=header.count)


class _Inside:
    """Whether a file stays below a folder once links and `..` are resolved; each folder is looked up once."""

    def __init__(self, base: Path) -> None:
        self.base = os.path.realpath(base)
        self.folders: dict[Path, bool] = {}

    def holds(self, path: Path) -> bool | None:
        """False: it leads outside. None: there is no such file."""
        try:
            if path.is_symlink():
                inside = self._inside(path)
            else:
                if path.parent not in self.folders:
                    self.folders[path.parent] = self._inside(path.parent)
                inside = self.folders[path.parent]
            return (path.is_file() or None) if inside else False
        except (OSError, ValueError):  # name too long, NUL byte, looping links
            return None

    def _inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.base)
