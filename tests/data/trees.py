"""Small made-up image trees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proud.data.task import assemble
from proud.data.catalog import scan_folder
from proud.data.types import Task

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"
"""Real data beside the repository; tests that need it skip where it is absent."""


def pixels(seed: int, height: int = 12, width: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write_image(path: Path, seed: int, height: int = 12, width: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed, height, width)).save(path)
    return path


def write_tree(root: Path, counts: Mapping[str, Mapping[str, int]]) -> Path:
    """{domain: {class: number of images}}; every image is different."""
    seed = 0
    for domain, classes in counts.items():
        for label, count in classes.items():
            (root / domain / label).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                seed += 1
                write_image(root / domain / label / f"{number:03d}.png", seed)
    return root


def three_sites(root: Path, per_class: int = 10) -> Path:
    return write_tree(root, {site: {"cat": per_class, "dog": per_class} for site in ("central", "north", "south")})


def site_task(root: Path, **options: Any) -> Task:
    """Of `three_sites` and the like: central is labeled, south unseen."""
    settings: dict[str, Any] = {"labeled": "central", "test": "south", "size": 16, "seed": 7} | options
    return assemble(scan_folder(root), **settings)
