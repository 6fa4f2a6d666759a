"""How large a domain's images are, found from a few of them without decoding."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import numpy as np
from PIL import Image

from proud.data.catalog import Catalog
from proud.data.roles import find_domain
from proud.data.walk import FORMATS, MAX_BYTES
from proud.plain_files import open_plain

LOOKED_AT = 16


def native_side(catalog: Catalog, domain_name: str) -> int:
    """The median shorter side of some images of the domain; 224 where none can be read."""
    domain = find_domain(catalog, domain_name)
    sides = []
    for entry in domain.entries[:: max(1, len(domain.entries) // LOOKED_AT)]:
        source = catalog.source(domain, entry)
        if isinstance(source, np.ndarray):
            sides.append(min(source.shape[:2]))
            continue
        try:
            with open_plain(source, MAX_BYTES) as file, Image.open(file, formats=FORMATS) as image:
                sides.append(min(image.size))
        except Exception:  # PIL's readers answer broken content with errors of every kind; decoding names it
            continue
    return median_side(sides)


def median_side(sides: Iterable[int]) -> int:
    found = list(sides)
    return int(median(found)) if found else 224
