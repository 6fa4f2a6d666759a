"""Where the images are, before any is decoded: folders, a CSV file, or arrays in memory."""

from __future__ import annotations

import csv
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from proud.data.walk import IMAGE_SUFFIXES, Walk
from proud.errors import UserError
from proud.text import nfc

SHOWN = 5
MANY_OTHERS = 10  # files that are no images, in a domain's folder; or
LARGE_SHARE = 0.05  # as many of them, against the images
BESIDE_IMAGES = frozenset({".txt", ".csv", ".json", ".xml", ".md", ".db", ".html", ".yaml", ".yml", ".ini"})
REPORT_MARK = "made-by-proud-report.json"  # lies beside the pictures of `proud report`
SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


class Entry(NamedTuple):
    """One image: its path below the root (or its row in an array), its class where stated, its shipped split."""

    location: str
    label: str | None
    split: str | None = None


@dataclass(frozen=True, eq=False)
class DomainFiles:
    """The images of one domain. `pixels` [N,H,W,C] holds them if they are in memory rather than in files."""

    name: str
    entries: tuple[Entry, ...]
    empty_classes: tuple[str, ...] = ()
    pixels: np.ndarray | list[np.ndarray] | None = None
    splits: tuple[str, ...] = ()
    """folders in place of class folders whose names are those of splits: the images have no labels"""

    def __post_init__(self) -> None:
        """Names of domains and classes go into many files: they must be text. Names of images may be anything."""
        for name in {self.name, *(entry.label or "" for entry in self.entries)}:
            if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise UserError(
                    f"The folder name {name!r} is not valid UTF-8, and it names a domain or a class: rename it."
                )

    @property
    def ships_split(self) -> bool:
        return any(entry.split for entry in self.entries)


@dataclass(frozen=True, eq=False)
class Catalog:
    """All domains below one root.

    `held_out`: the share that is not trained on by this data set's convention, although it ships no split.
    """

    name: str
    root: Path | None
    domains: dict[str, DomainFiles]
    held_out: float | None = None
    benchmark: bool = False
    """a public benchmark in its own layout, rather than a folder that has its name"""
    ignored_links: tuple[str, ...] = field(default=())
    notices: dict[str, str] = field(default_factory=dict)
    """domain → what is odd about its folder, in a sentence; a link in place of a domain is one without images"""
    told: set[tuple[str, ...]] = field(default_factory=set)
    """what was warned of: once is enough for many tasks"""

    def tell(self, text: str, *about: str) -> None:
        """A warning, unless there is nothing to say or it was said before."""
        if text and about not in self.told:
            self.told.add(about)
            warnings.warn(text, stacklevel=3)

    def source(self, domain: DomainFiles, entry: Entry) -> Path | np.ndarray:
        """Where to read one image from."""
        if domain.pixels is not None:
            return domain.pixels[int(entry.location)]
        return (self.root or Path()) / entry.location


def scan_folder(root: Path | str) -> Catalog:
    """`ROOT/<domain>/<class>/*`, or images at any depth for domains without classes.

    An image's label is the first folder below its domain, if there is one.
    """
    top = Path(root)
    if not top.is_dir():
        raise UserError(f"There is no folder {top}. Expected: ROOT/<domain>/<class>/<image files>")
    walk = Walk(top)
    domains: dict[str, DomainFiles] = {}
    notices: dict[str, str] = {}
    folders = walk.folders(top)
    linked = leaving_links(walk)
    _refuse_two_spellings(top, [*(folder.name for folder in folders), *linked])
    for folder in folders:
        if (folder / REPORT_MARK).is_file():
            notices[folder.name] = f"{folder.name} holds the pictures of a report and is left out"
            continue
        walk.others.clear()
        before = len(walk.ignored_links)
        domain = domains[nfc(folder.name)] = _read_domain(folder, walk)
        odd = not_read(domain.name, len(domain.entries), walk.others, leaving_links(walk, before))
        if odd or domain.splits:
            notices[domain.name] = "; ".join(filter(None, [odd, taken_for_splits(domain)]))
    if not any(domain.entries for domain in domains.values()):
        raise UserError(_nothing_found(top, walk))
    for name in map(nfc, linked):
        domains[name] = DomainFiles(name, ())
        notices[name] = f"{name} is a link that leaves the folder and is not followed"
    links = tuple(sorted(set(walk.ignored_links)))
    return Catalog(top.name or str(top), top, domains, ignored_links=links, notices=notices)


def _refuse_two_spellings(top: Path, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(map(nfc, names)).items() if count > 1]
    if twice:
        raise UserError(
            f"Two folders of {top} are named {twice[0]!r}, in two spellings of Unicode (NFC and NFD): rename one, or "
            "put all images into one."
        )


def _read_domain(folder: Path, walk: Walk) -> DomainFiles:
    above = len(str(folder)) - len(folder.name)
    found = [path[above:].replace(os.sep, "/") for path in walk.image_paths(str(folder))]
    found.sort()
    splits = split_folders(path.split("/")[1:-1] for path in found)
    parts = (path.split("/", 2) for path in found)
    labels = [nfc(names[1]) if len(names) > 2 and not splits else None for names in parts]
    empty = {nfc(sub.name) for sub in walk.folders(folder)}.difference(labels, splits)
    return DomainFiles(nfc(folder.name), tuple(map(Entry, found, labels)), tuple(sorted(empty)), splits=splits)


def split_folders(folders: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """`train/<class>/*` and `test/<class>/*` are not two classes; `train/*` and `test/*` may be.

    `folders`: for each image of a domain, the folders that lead to it from there.
    """
    first, above_others = set(), set()
    for names in folders:
        if not names or names[0].lower() not in SPLITS:
            return ()
        first.add(names[0])
        if len(names) > 1:
            above_others.add(names[0])
    return tuple(sorted(first)) if len(first) > 1 and above_others == first else ()


def nested_classes(domain: DomainFiles) -> str:
    """A sentence if what is taken for classes looks like a level above them, as years or scanners do; else ''."""
    below: dict[str, set[str]] = {}
    for entry in domain.entries:
        if entry.label is not None:
            first, *more = nfc(entry.location).split("/")[1:-1] or [""]
            below.setdefault(entry.label, set()).add(more[0] if more and first == entry.label else "")
    inner = next(iter(below.values()), set())
    if len(below) < 2 or len(inner) < 2 or "" in inner or any(names != inner for names in below.values()):
        return ""
    return (
        f"The folders {some(sorted(below))} of {domain.name} are taken for its classes, but each of them holds the "
        f"same folders: {some(sorted(inner))}. If these are the classes, put them directly below the domain."
    )


def taken_for_splits(domain: DomainFiles) -> str:
    """A sentence for where no labels are needed; '' if the domain's folders are classes."""
    if not domain.splits:
        return ""
    return f"{domain.name}: its folders {', '.join(domain.splits)} look like splits, so its images have no labels"


def refuse_splits(domain: DomainFiles) -> None:
    """Where labels are needed."""
    if domain.splits:
        raise UserError(
            f"The folders {', '.join(domain.splits)} of the domain {domain.name!r} look like splits and not like "
            "classes: proud splits the labeled domain itself. Put the class folders directly below the domain, or "
            "give a CSV file with a column `split`."
        )


def leaving_links(walk: Walk, start: int = 0) -> list[str]:
    """The links, from the one numbered `start`, that lead out of the folder; those that lead back lose no image."""
    links = sorted(set(walk.ignored_links[start:]))
    return [link for link in links if not Path(os.path.realpath(walk.root / link)).is_relative_to(walk.real_root)]


def not_read(name: str, images: int, others: Counter[str], links: Sequence[str]) -> str:
    """A sentence if much of a folder is not read, else '': images must not vanish without a word."""
    files = _foreign(others)
    if not images:
        notes_only = others and not files and not links
        return "" if notes_only else f"{name} holds no images and is left out{found_instead(others, links)}"
    told = []
    if sum(files.values()) >= min(MANY_OTHERS, LARGE_SHARE * images):
        told.append(f"not all files are read (not: {_listed(files)})")
    if links:
        told.append(_not_followed(links))
    return f"{name}: {'; '.join(told)}" if told else ""


def found_instead(others: Counter[str], links: Sequence[str]) -> str:
    """In brackets, what there is where no image is."""
    files = _foreign(others)
    told = [f"files: {_listed(files)}"] if files else []
    if links:
        told.append(_not_followed(links))
    return f" ({'; '.join(told)})" if told else ""


def _foreign(others: Counter[str]) -> dict[str, int]:
    """Suffix → how many files; without those that usually lie beside images."""
    return {suffix: count for suffix, count in sorted(others.items()) if suffix not in BESIDE_IMAGES}


def _listed(files: dict[str, int]) -> str:
    kinds = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in list(files.items())[:SHOWN])
    return f"{kinds}; read are {' '.join(sorted(IMAGE_SUFFIXES))}"


def _not_followed(links: Sequence[str]) -> str:
    many = f"{len(links)} links that leave the folder are" if len(links) > 1 else "1 link that leaves the folder is"
    return f"{many} not followed ({some(links)})"


def _nothing_found(root: Path, walk: Walk) -> str:
    loose = sum(1 for path in root.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    text = f"No images in the domain folders of {root}. Expected: ROOT/<domain>/<class>/<image files>"
    text += f" ({' '.join(sorted(IMAGE_SUFFIXES))})"
    if loose:
        text += f"; found {loose} images directly in it, outside any domain folder"
    if walk.ignored_links:
        text += f". Links that leave the folder are not followed: {some(sorted(set(walk.ignored_links)))}"
    return text


def scan_csv(path: Path | str) -> Catalog:
    """A table with the columns path, domain, label and perhaps split; paths are relative to the table's folder."""
    table = Path(path)
    rows = _read_table(table)
    base, real_folders = table.parent, _RealFolders(table.parent)
    problems: list[str] = []
    seen: dict[str, int] = {}
    entries: dict[str, list[Entry]] = {}
    for line, row in rows:
        location, domain, split = row["path"], nfc(row["domain"]), row.get("split") or None
        place = os.path.normpath(Path(real_folders.base, location))
        if not location or not domain:
            problems.append(f"line {line}: no {'path' if not location else 'domain'}")
        elif split not in (None, "train", "val"):
            problems.append(f"line {line}: split {split!r} is neither 'train' nor 'val' nor empty")
        elif place in seen:
            problems.append(f"line {line}: {location} is listed before, in line {seen[place]}")
        elif (there := real_folders.hold(base / location)) is False:
            problems.append(f"line {line}: {location} is outside the table's folder")
        elif not there:
            problems.append(f"line {line}: there is no file {location}")
        else:
            entries.setdefault(domain, []).append(Entry(location, nfc(row["label"]) or None, split))
        seen.setdefault(place, line)
    for domain, found in entries.items():
        if len({entry.split is None for entry in found}) > 1:
            problems.append(f"domain {domain}: some rows state a split and some do not")
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        more = [f"  … and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise UserError("\n".join([f"{count} in {table}:", *(f"  {text}" for text in problems[:SHOWN]), *more]))
    domains = {
        name: DomainFiles(name, tuple(sorted(entries[name], key=lambda entry: entry.location)))
        for name in sorted(entries)
    }
    return Catalog(table.stem, base, domains)


def _read_table(table: Path) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) for every row, cells and column names without surrounding blanks."""
    if not table.is_file():
        raise UserError(f"There is no file {table}. Expected: a CSV file with the columns path, domain, label")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = [(name or "").strip().lower() for name in reader.fieldnames or ()]
            missing = [name for name in ("path", "domain", "label") if name not in columns]
            if missing:
                hint = " The columns must be separated by commas." if len(columns) == 1 else ""
                raise UserError(
                    f"{table} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: its first line "
                    f"must name path, domain and label (split is optional); it names {', '.join(columns) or 'nothing'}."
                    + hint
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
    if not rows:
        raise UserError(f"{table} has no rows below its column names")
    return rows


class _RealFolders:
    """Says whether a file stays below a folder once links and `..` are followed; each folder is looked up once."""

    def __init__(self, base: Path) -> None:
        self.base = os.path.realpath(base)
        self.real: dict[Path, bool] = {}

    def hold(self, path: Path) -> bool | None:
        """False: it leads outside. None: there is no such file."""
        try:
            if path.is_symlink():
                inside = self._inside(path)
            else:
                if path.parent not in self.real:
                    self.real[path.parent] = self._inside(path.parent)
                inside = self.real[path.parent]
            return (path.is_file() or None) if inside else False
        except (OSError, ValueError):  # too long a name, a NUL byte, links that loop
            return None

    def _inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.base)


def array_domain(name: str, images: np.ndarray | list[np.ndarray], labels: Sequence[str | None]) -> DomainFiles:
    """A domain whose pixels [N,H,W,1 or 3] uint8 are in memory, or a list of images of any sizes."""
    entries = tuple(Entry(str(row), label and nfc(label)) for row, label in enumerate(labels))
    return DomainFiles(nfc(name), entries, pixels=images)


def some(names: Iterable[str]) -> str:
    """The first few of many names, and how many more there are."""
    every = list(names)
    rest = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + rest
