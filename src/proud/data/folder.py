"""Domains from folders: `ROOT/<domain>/<class>/*`, or images at any depth for domains without classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.data.walk import IMAGE_SUFFIXES, Walk
from proud.errors import UserError
from proud.text import SHOWN_NAMES, nfc, some

MANY_OTHERS = 10  # files in a domain's folder that are not images, or
LARGE_SHARE = 0.05  # this share of the number of images, are worth a warning
BESIDE_IMAGES = frozenset({".txt", ".csv", ".json", ".xml", ".md", ".db", ".html", ".yaml", ".yml", ".ini"})
REPORT_MARK = "made-by-proud-report.json"  # lies beside the figures of `proud report`
SPLITS = frozenset({"train", "val", "valid", "validation", "test"})


def scan_folder(root: Path | str, follow_links: bool = False) -> Catalog:
    """All domains below a root. An image's label is the first folder below its domain, if there is one."""
    top = Path(root)
    if not top.is_dir():
        raise UserError(f"There is no folder {top}. Expected: ROOT/<domain>/<class>/<image files>")
    walk = Walk(top, follow_links)
    domains: dict[str, DomainFiles] = {}
    notices: dict[str, str] = {}
    folders = walk.folders(top)
    linked = leaving_links(walk)
    _refuse_two_spellings(top, [*(folder.name for folder in folders), *linked])
    for folder in folders:
        if (folder / REPORT_MARK).is_file():
            notices[folder.name] = f"{folder.name} holds the figures of a report and is skipped"
            continue
        walk.others.clear()
        before = len(walk.ignored_links)
        domain = domains[nfc(folder.name)] = _read_domain(nfc(folder.name), folder, walk, below=folder.parent)
        odd = not_read(domain.name, len(domain.entries), walk.others, leaving_links(walk, before))
        if odd or domain.splits:
            notices[domain.name] = "; ".join(filter(None, [odd, taken_for_splits(domain)]))
    if not any(domain.entries for domain in domains.values()):
        raise UserError(_nothing_found(top, walk))
    for name in map(nfc, linked):
        domains[name] = DomainFiles(name, ())
        notices[name] = f"{name} is a link that leaves the folder and is not followed without --follow-links"
    links = tuple(sorted(set(walk.ignored_links)))
    return Catalog(top.name or str(top), top, domains, ignored_links=links, notices=notices)


def scan_domain(name: str, folder: Path, follow_links: bool = False) -> tuple[DomainFiles, str]:
    """One domain from a folder of its own, and a warning if much of the folder is not read."""
    walk = Walk(folder, follow_links)
    domain = _read_domain(name, folder, walk, below=None)
    links = leaving_links(walk)
    if not domain.entries:
        raise UserError(f"There are no images in {folder}{found_instead(walk.others, links)}.")
    return domain, not_read(name, len(domain.entries), walk.others, links)


def _read_domain(name: str, folder: Path, walk: Walk, below: Path | None) -> DomainFiles:
    """Locations are relative to `below`, or as found if it is None."""
    inside = len(str(folder)) + 1
    cut = inside - 1 - len(folder.name) if below is not None else 0
    paths = sorted(path.replace(os.sep, "/") for path in walk.image_paths(str(folder)))
    splits = split_folders(path[inside:].split("/")[:-1] for path in paths)
    parts = (path[inside:].split("/", 1) for path in paths)
    labels = [nfc(names[0]) if len(names) > 1 and not splits else None for names in parts]
    empty = {nfc(sub.name) for sub in walk.folders(folder)}.difference(labels, splits)
    entries = tuple(map(Entry, (path[cut:] for path in paths), labels))
    return DomainFiles(name, entries, tuple(sorted(empty)), splits=splits)


def _refuse_two_spellings(top: Path, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(map(nfc, names)).items() if count > 1]
    if twice:
        raise UserError(
            f"Two folders of {top} are named {twice[0]!r}, in two Unicode spellings (NFC and NFD): rename one, or "
            "put all images into one."
        )


# ---- folders that are not classes


def split_folders(folders: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """`train/<class>/*` and `test/<class>/*` are not two classes; `train/*` and `test/*` may be.

    `folders`: for each image of a domain, the folders between the domain and the image.
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
    """A warning if the folders taken for classes look like a level above them, such as years or scanners."""
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


def one_site(catalog: Catalog) -> str:
    """A hint if the folders taken for domains may be classes, because none of them holds folders."""
    top, domains = catalog.root, [domain for domain in catalog.domains.values() if domain.entries]
    if (
        top is None
        or catalog.name != top.name
        or len(domains) < 2
        or any(entry.label for domain in domains for entry in domain.entries)
    ):
        return ""
    place = top.absolute()
    return (
        f" If the folders of {top} are classes, it is one site: name the folder above it, --data "
        f"{quote(str(place.parent))} --labeled {quote(place.name)}."
    )


def taken_for_splits(domain: DomainFiles) -> str:
    """A warning, where no labels are needed, that the domain's folders are not read as classes."""
    if not domain.splits:
        return ""
    return f"{domain.name}: its folders {', '.join(domain.splits)} look like splits, so its images have no labels"


def refuse_splits(domain: DomainFiles) -> None:
    """Where labels are needed."""
    if domain.splits:
        raise UserError(
            f"The folders {', '.join(domain.splits)} of the domain {domain.name!r} look like splits, not classes: "
            "proud splits the labeled domain itself. Put the class folders directly below the domain, or use a CSV "
            "file with a column `split`."
        )


# ---- what is not read


def leaving_links(walk: Walk, start: int = 0) -> list[str]:
    """Links, from number `start` on, that lead out of the folder; those that stay inside or loop lose no image."""
    if walk.follow_links:
        return []
    links = sorted(set(walk.ignored_links[start:]))
    return [link for link in links if not Path(os.path.realpath(walk.root / link)).is_relative_to(walk.real_root)]


def not_read(name: str, images: int, others: Counter[str], links: Sequence[str]) -> str:
    """A warning if much of a folder is not read: images must not be dropped silently."""
    files = _foreign(others)
    if not images:
        notes_only = others and not files and not links
        return "" if notes_only else f"{name} has no images and is skipped{found_instead(others, links)}"
    reasons = []
    if sum(files.values()) >= min(MANY_OTHERS, LARGE_SHARE * images):
        reasons.append(f"some files are not read ({_listed(files)})")
    if links:
        reasons.append(_not_followed(links))
    return f"{name}: {'; '.join(reasons)}" if reasons else ""


def found_instead(others: Counter[str], links: Sequence[str]) -> str:
    """In brackets, what a folder without images holds."""
    files = _foreign(others)
    reasons = [f"files: {_listed(files)}"] if files else []
    if links:
        reasons.append(_not_followed(links))
    return f" ({'; '.join(reasons)})" if reasons else ""


def _foreign(others: Counter[str]) -> dict[str, int]:
    """Suffix → number of files, without those that usually lie beside images."""
    return {suffix: count for suffix, count in sorted(others.items()) if suffix not in BESIDE_IMAGES}


def _listed(files: dict[str, int]) -> str:
    first = list(files.items())[:SHOWN_NAMES]
    kinds = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in first)
    return f"{kinds}; supported: {' '.join(sorted(IMAGE_SUFFIXES))}"


def _not_followed(links: Sequence[str]) -> str:
    many = f"{len(links)} links that leave the folder are" if len(links) > 1 else "1 link that leaves the folder is"
    return f"{many} not followed ({some(links)}); --follow-links reads them"


def _nothing_found(root: Path, walk: Walk) -> str:
    loose = sum(1 for path in root.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    text = f"No images in the domain folders of {root}. Expected: ROOT/<domain>/<class>/<image files>"
    text += f" ({' '.join(sorted(IMAGE_SUFFIXES))})"
    if loose:
        text += f"; found {loose} images directly in it, outside any domain folder"
    if walk.ignored_links:
        text += f". Links that leave the folder are not followed: {some(sorted(set(walk.ignored_links)))}; "
        text += "--follow-links reads them"
    return text
