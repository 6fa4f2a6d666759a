"""How large a domain's images are, from a few of them, without decoding."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, BinaryIO

from PIL import Image

from proud.data.dicom import DICOM_START, dicom_size, is_dicom
from proud.data.walk import FORMATS, MAX_BYTES
from proud.files import open_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proud.data.catalog import Catalog, DomainFiles

SAMPLED = 16
LONG = 1.5  # aspect ratio
UNKNOWN_SIDE = 224


def native_side(catalog: Catalog, domain: DomainFiles) -> int:
    """The median shorter side of some images of the domain; 224 if none can be read."""
    sides = [min(size) for size in sampled_sizes(catalog, domain)]
    return int(median(sides)) if sides else UNKNOWN_SIDE


def cropped_away(catalog: Catalog, domain: DomainFiles) -> str:
    """A warning if the centre crop loses much of the domain's images."""
    ratios = sorted(max(size) / max(1, min(size)) for size in sampled_sizes(catalog, domain))
    usual = ratios[len(ratios) // 2] if ratios else 1.0
    if usual < LONG:
        return ""
    return (
        f"The images of {domain.name} have an aspect ratio of {usual:.1f}, and only their centre crop is used. Use "
        "--square pad (or stretch) to keep all of each image."
    )


def sampled_sizes(catalog: Catalog, domain: DomainFiles) -> list[tuple[int, ...]]:
    """Sizes of some readable images, read once per catalog."""
    if domain.name not in catalog.sizes:
        catalog.sizes[domain.name] = list(_sizes(catalog, domain))
    return catalog.sizes[domain.name]


def image_size(file: BinaryIO) -> tuple[int, int]:
    """Width and height, from the header."""
    start = file.read(DICOM_START)
    file.seek(0)
    if is_dicom(start):
        return dicom_size(file)
    with Image.open(file, formats=FORMATS) as image:
        return image.size


def _sizes(catalog: Catalog, domain: DomainFiles) -> Iterator[tuple[int, ...]]:
    if domain.ready is not None:
        yield tuple(domain.ready.images.shape[2:])
        return
    for entry in domain.entries[:: max(1, -(-len(domain.entries) // SAMPLED))]:
        if domain.pixels is not None:
            yield domain.pixels[int(entry.location)].shape[:2]
            continue
        try:
            source = catalog.source(domain, entry)
            with open_plain(source, MAX_BYTES) as file:  # type: ignore[arg-type]
                size = image_size(file)
        except Exception:  # Pillow raises errors of every kind on broken content; decoding reports them
            continue
        yield size
