"""One picture of all sites side by side: a row per site, a column per class.

Usage: python benchmarks/site_pictures.py wbc --root DIR --out labs.png   (or your own folder, without --root)

The images are drawn by a seed, not selected. Whether the picture may be published is a matter of the images' licences.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from matplotlib import pyplot as plt

from proud.data.benchmarks import open_catalog
from proud.data.catalog import Catalog
from proud.data.decode import PixelFormat, decode
from proud.data.roles import sort_classes

SIDE, INCHES = 160, 1.5


def draw(catalog: Catalog, out: Path, seed: int) -> list[list[str]]:
    """Returns the place of each image, by site and class; "" where a site has none of a class."""
    sites = [domain for domain in catalog.domains.values() if domain.entries]
    classes = sort_classes({entry.label for site in sites for entry in site.entries if entry.label is not None})
    size = (INCHES * len(classes), INCHES * len(sites))
    figure, axes = plt.subplots(len(sites), len(classes), figsize=size, squeeze=False)
    chosen, generator = [], random.Random(seed)
    for site, row in zip(sites, axes, strict=True):
        chosen.append([])
        row[0].set_ylabel(site.name)
        for label, axis in zip(classes, row, strict=True):
            axis.set(xticks=[], yticks=[])
            axis.set_title(label if site is sites[0] else "", fontsize=9)
            mine = [entry for entry in site.entries if entry.label == label]
            entry = generator.choice(mine) if mine else None
            chosen[-1].append(entry.location if entry else "")
            if entry is not None:
                pixels = decode(catalog.source(site, entry), PixelFormat(SIDE))
                axis.imshow(pixels.permute(1, 2, 0).numpy())
    figure.tight_layout(pad=0.4)
    figure.savefig(out, dpi=100)
    plt.close(figure)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--root", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    draw(open_catalog(arguments.data, arguments.root), arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
