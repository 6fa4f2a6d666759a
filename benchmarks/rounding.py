"""What SGD makes of a rounding: loss curves of the plain loop from weights that differ by one part in eight million.

Usage: python benchmarks/rounding.py --out benchmarks/results/rounding.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from proud.speed import equality
from proud.files import write_json
from proud.machine import choose_device, environment


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_num_threads(1)
    found = equality("digits-dg", "proud", device)
    print(found)
    command = {"command": "python benchmarks/rounding.py"}
    write_json(arguments.out, {"data": "digits-dg", "method": "proud", **found, **command, **environment(device)})


if __name__ == "__main__":
    main()
