"""What every image file of a domain holds: all of them are read once and decoded."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from proud.config import ReadSpec
from proud.data.bad import BadImage
from proud.data.catalog import Catalog, DomainFiles, Entry
from proud.data.checks import ImageRow, copies_of
from proud.data.decode import PixelFormat, content_hash, decode, in_threads
from proud.data.dicom import is_dicom
from proud.data.near_copies import SMALLEST_SIDE, signatures
from proud.data.shapes import image_size
from proud.data.walk import FORMATS, MAX_BYTES
from proud.files import read_regular
from proud.text import some

LOOKED_AT_SIDE = 32


class Seen(NamedTuple):
    """One image file."""

    entry: Entry
    content: str = ""
    size: tuple[int, int] = (0, 0)
    kind: str = ""
    """format and mode, as in `JPEG RGB`"""
    brightest: int = 255
    signature: Tensor | None = None
    """of images that are compared with others; see near_copies"""
    problem: str = ""


@dataclass(frozen=True)
class SiteReport:
    """What a domain holds."""

    name: str
    seen: tuple[Seen, ...]
    can_be_labeled: str
    """empty, or why not"""

    @property
    def good(self) -> list[Seen]:
        return [image for image in self.seen if not image.problem]

    @property
    def classes(self) -> Counter[str]:
        return Counter(image.entry.label for image in self.seen if image.entry.label is not None)

    @property
    def rows(self) -> list[ImageRow]:
        return [ImageRow(image.content, image.entry) for image in self.good]

    @property
    def copies(self) -> int:
        """Images that are there more than once, not counting the first."""
        return sum(len(places) - 1 for places in copies_of(self.rows))

    @property
    def sides(self) -> str:
        """The usual width × height, and the smallest and largest if they differ."""
        sizes = sorted({image.size for image in self.good}, key=lambda size: size[0] * size[1])
        if not sizes:
            return "–"
        usual = Counter(image.size for image in self.good).most_common(1)[0][0]
        if len(sizes) == 1:
            return f"{usual[0]}×{usual[1]}"
        return f"{sizes[0][0]}×{sizes[0][1]} to {sizes[-1][0]}×{sizes[-1][1]}"

    @property
    def kinds(self) -> str:
        return some(f"{kind} {count}" for kind, count in Counter(image.kind for image in self.good).most_common())


def read_site(catalog: Catalog, domain: DomainFiles, reading: ReadSpec, progress: bool) -> SiteReport:
    seen = [Seen(entry) for entry in domain.entries]
    pixels = PixelFormat(LOOKED_AT_SIDE, max_pixels=reading.max_pixels)

    def look(row: int) -> None:
        seen[row] = look_at(catalog.source(domain, domain.entries[row]), domain.entries[row], pixels)

    Image.init()  # Pillow's lazy set-up is not thread-safe
    in_threads(look, len(seen), progress, f"Reading {domain.name}")
    return SiteReport(domain.name, tuple(seen), why_not_labeled(domain))


def look_at(source: Path | np.ndarray, entry: Entry, pixels: PixelFormat) -> Seen:
    """Its content, size and kind; decoded, because many files are broken after their header."""
    try:
        if isinstance(source, np.ndarray):
            height, width = source.shape[:2]
            signs = signature(decode(source, pixels), (width, height))
            return Seen(entry, content_hash(source), (width, height), "array", int(source.max()), signs)
        content = read_regular(source, MAX_BYTES)
        image = decode(content, pixels)
        size, kind = size_and_kind(content)
        return Seen(entry, content_hash(content), size, kind, int(image.max()), signature(image, size))
    except BadImage as error:
        return Seen(entry, problem=str(error))
    except OSError as error:
        return Seen(entry, problem=f"cannot be read ({error.strerror or error})")


def signature(image: Tensor, size: tuple[int, int]) -> Tensor | None:
    return signatures(image[None])[0] if min(size) >= SMALLEST_SIDE else None


def size_and_kind(content: bytes) -> tuple[tuple[int, int], str]:
    if is_dicom(content):
        return image_size(io.BytesIO(content)), "DICOM"
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        return image.size, f"{image.format} {image.mode}"


def why_not_labeled(domain: DomainFiles) -> str:
    """Why it cannot be the labeled domain; empty if it can."""
    if domain.splits:
        return "its folders are splits"
    if without := len(domain.unlabeled_entries):
        return "no class folders" if without == len(domain.entries) else f"{without} images without a label"
    if domain.empty_classes:
        return f"empty class folders: {some(domain.empty_classes)}"
    if len({entry.label for entry in domain.entries}) < 2:
        return "only one class"
    return ""
