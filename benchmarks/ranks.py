"""Differences of two and three processes from one, in float64 and float32: `python benchmarks/ranks.py`.

Trains the small runs of tests/distributed with one process and under torchrun (CPU, gloo), and compares all losses of
all epochs, the final pseudo-labels and the final weights. Writes benchmarks/results/ranks.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "ranks.json"
PATHS = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "distributed")]
sys.path[:0] = PATHS


def train_all(folder: Path) -> None:
    """In every process."""
    import torch
    from together import RUNS, one_run, small_chunks

    from proud.distributed.ranks import join

    torch.set_num_threads(1)
    small_chunks()
    with join("cpu") as group:
        for double in (True, False):
            for name in RUNS:
                one_run(name, folder / ("float64" if double else "float32"), group, double)


def differences(one: Path, many: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    records = [[json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()] for path in (one, many)]
    loss = max(
        abs(found["losses"][key] - value) / max(abs(value), 1e-12)
        for wanted, found in zip(*records, strict=True)
        for key, value in wanted["losses"].items()
    )
    weights = [load_file(path / "model" / "model.safetensors") for path in (one, many)]
    far = max((weights[1][key].double() - value.double()).abs().max().item() for key, value in weights[0].items())
    found: dict[str, Any] = {"loss_relative": loss, "weight_absolute": far}
    if (one / "pseudo_labels.csv").exists():
        labels = [[line.split(",")[:3] for line in (path / "pseudo_labels.csv").open()] for path in (one, many)]
        found["pseudo_labels"] = len(labels[0]) - 1
        found["pseudo_labels_different"] = sum(a != b for a, b in zip(*labels, strict=True))
    return found


def main() -> None:
    if len(sys.argv) > 1:
        train_all(Path(sys.argv[1]))
        return
    import torch
    from together import RUNS

    from proud.machine import environment

    rows = []
    with tempfile.TemporaryDirectory(prefix="ranks-") as place:
        folders = {size: Path(place) / str(size) for size in (1, 2, 3)}
        own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(PATHS)}
        for size, folder in folders.items():
            start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
            subprocess.run([*start, __file__, str(folder)], check=True, env={**os.environ, **own})
        for precision in ("float64", "float32"):
            for size in (2, 3):
                for name in RUNS:
                    pair = (folders[count] / precision / name for count in (1, size))
                    rows.append({"precision": precision, "processes": size, "run": name} | differences(*pair))
    about = {"command": "python benchmarks/ranks.py", **environment(torch.device("cpu"))}
    RESULT.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
