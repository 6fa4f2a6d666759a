"""How large a domain's images are, found from a few of them without decoding."""

from __future__ import annotations

from statistics import median

import numpy as np
from PIL import Image

from proud.data.catalog import Catalog
from proud.data.roles import find_domain

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
            with Image.open(source) as image:
                sides.append(min(image.size))
        except (OSError, ValueError, Image.DecompressionBombError):
            continue
    return int(median(sides)) if sides else 224
