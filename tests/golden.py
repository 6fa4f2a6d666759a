"""Small runs whose numbers are kept as a test asset: if they change, an algorithm has changed.

After a deliberate change, regenerate the asset and say why in the commit: `python tests/golden.py`
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from proud.cli import bench
from proud.cli.flags.bench import BenchArguments
from proud.config import Machine, NetSpec, Options, ReadSpec
from proud.training.loop import Progress
from proud.training.run import train
from toy import SIDE, toy_run, toy_settings, toy_task, write_folders

PATH = Path(__file__).parent / "assets" / "golden.json"
RUNS: dict[str, dict[str, Any]] = {"proud": {}, "proud-plus": {"lr": 0.005}, "eid": {"lr": 0.005}}
SIGNALS = ("uncertainty", "lambda_uncertainty", "lambda")


def train_one(
    method: str, folder: Path, watch: Callable[[Progress], None] = lambda now: None, resume: bool = False
) -> dict[str, Any]:
    task, settings = toy_task(per_class=5), toy_settings(method, epochs=3, pretrain_epochs=2, **RUNS[method])
    options = Options(out=str(folder), threads=1, device="cpu", quiet=True, resume=resume)
    train(toy_run(method, task), settings, options, data=task, watch=watch)
    return entry(folder)


def train_bench(folder: Path) -> dict[str, dict[str, Any]]:
    """Two methods, two unseen domains: the second two runs reuse the pretraining of the first two, or all of it."""
    data = write_folders(folder / "data", {"a": 0, "b": 1, "c": 2, "d": 3}, per_class=3)
    arguments = BenchArguments(
        str(data),
        out=str(folder / "bench"),
        methods="proud-plus,erm",
        combos="a:b,a:c",
        seeds="1",
        epochs=2,
        pretrain_epochs=12,
        set=("batch_size=8", "least_steps=1", "lr=0.005"),
        reading=ReadSpec(size=SIDE),
        network=NetSpec(model="digits", weights="none"),
        machine=Machine(device="cpu", threads=1),
        quiet=True,
    )
    assert bench.run(arguments) == 0
    runs = sorted((folder / "bench" / "runs").iterdir())
    assert len(runs) == 4
    return {f"bench/{run.name}": entry(run) for run in runs}


def entry(folder: Path) -> dict[str, Any]:
    """A finished run's numbers, and what is the same on machines of the same kind only: scores and every weight."""
    result = json.loads((folder / "result.json").read_text())
    return {
        "epochs": [numbers(json.loads(line)) for line in (folder / "records.jsonl").read_text().splitlines()],
        "exact": {
            "scores": {key: result[key] for key in ("val_accuracy", "test_accuracy") if key in result},
            "weights": digest(folder / "model" / "model.safetensors"),
        },
        "machine": {
            "torch": str(torch.__version__),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "processor": processor(),  # MKL chooses its code by the maker, too
            "threads": json.loads((folder / "run.json").read_text())["threads"],
        },
    }


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Of an epoch: all losses and, per domain, mean uncertainty and mixing ratio."""
    domains = record.get("domains", {})
    row = {key: record[key] for key in ("stage", "epoch", "losses", "shared_with") if key in record}
    return row | {
        "domains": {name: {key: domain[key] for key in SIGNALS if key in domain} for name, domain in domains.items()}
    }


def digest(path: Path) -> str:
    """sha256 of all weights under their names."""
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(path).items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().view(-1).numpy().tobytes())
    return found.hexdigest()


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {method: train_one(method, Path(folder) / method) for method in RUNS}
        found |= train_bench(Path(folder))
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
