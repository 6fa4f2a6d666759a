"""A CSV table of a few hundred images per domain, for measurements on a CPU.

Usage: python benchmarks/small_data.py ROOT --train 400 --val 100   (writes ROOT/small.csv, for `--data`)

Images are selected by the hash of their names: equally many per class where the data has folders `train` and `val`
(Digits-DG), otherwise from all of a domain, so that the classes keep their shares (PACS).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

Row = tuple[str, str, str, str]


def by_hash(paths: Iterator[Path]) -> list[Path]:
    return sorted(
        (path for path in paths if path.is_file()), key=lambda path: hashlib.sha256(path.name.encode()).digest()
    )


def rows_of(root: Path, domain: Path, train: int, val: int) -> Iterator[Row]:
    if not (domain / "train").is_dir():
        for number, path in enumerate(by_hash(domain.glob("*/*"))[: train + val]):
            yield str(path.relative_to(root)), domain.name, path.parent.name, "val" if number < val else "train"
        return
    for split, count in (("train", train), ("val", val)):
        folders = sorted(path for path in (domain / split).iterdir() if path.is_dir())
        for folder in folders:
            for path in by_hash(folder.iterdir())[: count // len(folders)]:
                yield str(path.relative_to(root)), domain.name, folder.name, split


def write_small(root: Path, train: int, val: int, name: str = "small.csv") -> Path:
    out = root / name
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "domain", "label", "split"])
        for domain in sorted(path for path in root.iterdir() if path.is_dir()):
            writer.writerows(rows_of(root, domain, train, val))
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path)
    parser.add_argument("--train", type=int, default=400)
    parser.add_argument("--val", type=int, default=100)
    arguments = parser.parse_args()
    print(write_small(arguments.root, arguments.train, arguments.val))
