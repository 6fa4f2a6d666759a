"""How large a domain's images are, found from a few of them without decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

import numpy as np
from PIL import Image

from proud.data.catalog import Catalog, DomainFiles
from proud.data.roles import find_domain
from proud.data.walk import FORMATS, MAX_BYTES
from proud.plain_files import open_plain

LOOKED_AT = 16
LONG = 1.5  # times the shorter side


def native_side(catalog: Catalog, domain_name: str) -> int:
    """The median shorter side of some images of the domain; 224 where none can be read."""
    return median_side(min(size) for size in some_sizes(catalog, find_domain(catalog, domain_name)))


def cut_off(catalog: Catalog, domain: DomainFiles) -> str:
    """A sentence if much of a domain's pictures lies outside their middle squares, else ''."""
    found = sorted(max(size) / max(1, min(size)) for size in some_sizes(catalog, domain))
    usual = found[len(found) // 2] if found else 1.0
    if usual < LONG:
        return ""
    return (
        f"The images of {domain.name} are {usual:.1f} times as long one way as the other: only the square in the "
        "middle of each is used. With --square pad (or stretch) all of each is."
    )


def some_sizes(catalog: Catalog, domain: DomainFiles) -> Iterator[tuple[int, ...]]:
    """Of those images that can be read."""
    for entry in domain.entries[:: max(1, len(domain.entries) // LOOKED_AT)]:
        source = catalog.source(domain, entry)
        if isinstance(source, np.ndarray):
            yield source.shape[:2]
            continue
        try:
            with open_plain(source, MAX_BYTES) as file, Image.open(file, formats=FORMATS) as image:
                size = image.size
        except Exception:  # PIL's readers answer broken content with errors of every kind; decoding names it
            continue
        yield size


def median_side(sides: Iterable[int]) -> int:
    found = list(sides)
    return int(median(found)) if found else 224
