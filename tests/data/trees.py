"""Small synthetic image trees, and tasks made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proud.config import TaskSpec
from proud.data.cache import NEVER
from proud.data.catalog import Catalog
from proud.data.folder import scan_folder
from proud.data.reader import MemoryCache
from proud.data.source import find_task
from proud.data.task import read_task
from proud.data.types import Task

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data"
"""Real data beside the repository; tests that need it skip where it is absent."""
PACS = ("photo", "art_painting", "cartoon", "sketch")


def pixels(seed: int, height: int = 12, width: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def batch(start: int, count: int = 20, side: int = 12) -> np.ndarray:
    return np.stack([pixels(start + number, side, side) for number in range(count)])


LABELS = [number % 2 for number in range(20)]
"""of a batch"""


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


def copy_image(path: Path, to: Path) -> None:
    to.write_bytes(path.read_bytes())


def three_sites(root: Path, per_class: int = 10) -> Path:
    return write_tree(root, {site: {"cat": per_class, "dog": per_class} for site in ("central", "north", "south")})


def task_of(
    catalog: Catalog,
    *,
    size: int = 16,
    memory: MemoryCache | None = None,
    disk: str = NEVER,
    verify: bool = False,
    **spec: Any,
) -> Task:
    """`spec`: fields of `TaskSpec`."""
    return read_task(find_task(TaskSpec(**spec), catalog), size, memory=memory, disk=disk, verify=verify)


def site_task(root: Path, **changes: Any) -> Task:
    """Of `three_sites` and the like: central is labeled, south unseen."""
    return task_of(scan_folder(root), **{"labeled": "central", "test": "south", "seed": 7} | changes)


# ---- public benchmarks in their own layouts


def digits_tree(root: Path) -> Path:
    seed = 0
    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        for split, count in (("train", 2), ("val", 1)):
            for digit in range(10):
                for number in range(count):
                    seed += 1
                    write_image(root / domain / split / str(digit) / f"{number}.png", seed)
    return root


def pacs_tree(root: Path, images: str = "images", lists: str | None = "splits", per_class: int = 4) -> Path:
    seed = 0
    for domain in PACS:
        lines: dict[str, list[str]] = {"train": [], "crossval": [], "test": []}
        for number, label in enumerate(("dog", "horse"), start=1):
            for row in range(per_class):
                seed += 1
                write_image(root / images / domain / label / f"pic_{row:03d}.jpg", seed)
                line = f"{domain}/{label}/pic_{row:03d}.jpg {number}"
                lines["crossval" if row == 0 else "train"].append(line)
                lines["test"].append(line)
        if lists is not None:
            (root / lists).mkdir(exist_ok=True, parents=True)
            for name, text in lines.items():
                (root / lists / f"{domain}_{name}_kfold.txt").write_text("\n".join(text) + "\n")
    return root


def office_tree(root: Path, real_world: str = "Real World", per_class: int = 20) -> Path:
    seed = 0
    for domain in ("Art", "Clipart", "Product", real_world):
        for label in ("Alarm_Clock", "Backpack", "ToothBrush"):
            for number in range(per_class):
                seed += 1
                write_image(root / domain / label / f"{number + 1:05d}.jpg", seed)
    return root
