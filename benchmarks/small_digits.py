"""A CSV table of a few hundred Digits-DG images per domain, for measurements on a CPU.

Usage: python benchmarks/small_digits.py ROOT --train 400 --val 100   (writes ROOT/small.csv, for `--data`)

Images are selected by the hash of their names, equally many per class.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from pathlib import Path


def write_small(root: Path, train: int, val: int, name: str = "small.csv") -> Path:
    out = root / name
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "domain", "label", "split"])
        for domain in sorted(path for path in root.iterdir() if path.is_dir()):
            for split, count in (("train", train), ("val", val)):
                folders = sorted(path for path in (domain / split).iterdir() if path.is_dir())
                for folder in folders:
                    files = sorted(folder.iterdir(), key=lambda path: hashlib.sha256(path.name.encode()).digest())
                    for path in files[: count // len(folders)]:
                        writer.writerow([path.relative_to(root).as_posix(), domain.name, folder.name, split])
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path)
    parser.add_argument("--train", type=int, default=400)
    parser.add_argument("--val", type=int, default=100)
    arguments = parser.parse_args()
    print(write_small(arguments.root, arguments.train, arguments.val))
