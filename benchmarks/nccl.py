"""One process under torchrun on a GPU (NCCL) vs one without: `python benchmarks/nccl.py --out FILE.json`.

Both train the built-in set with plain steps in fp32. Afterwards a run with fast steps is killed and resumed.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from proud.files import write_json
from proud.machine import environment

TRAIN = ["-m", "proud", "train", "--data", "embedded", "--labeled", "pen", "--test", "street", "--device", "cuda"]
TRAIN += ["--pretrain-epochs", "3", "--epochs", "3", "--quiet"]
PLAIN = ["--precision", "fp32", "--steps", "plain"]


def losses(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line)["losses"] for line in (folder / "records.jsonl").read_text().splitlines()]


def farthest(one: Path, other: Path) -> dict[str, float]:
    """Largest relative difference of losses, in the first epoch and overall: rounding grows from step to step."""
    pairs = zip(losses(one), losses(other), strict=True)
    epochs = [max(abs(b[key] - a[key]) / abs(a[key]) for key in a) for a, b in pairs]
    return {"first": epochs[0], "all": max(epochs)}


def under_torchrun(place: Path) -> dict[str, Any]:
    alone, again, ranks = (place / name for name in ("alone", "again", "ranks"))
    for folder in (alone, again):
        subprocess.run([sys.executable, *TRAIN, *PLAIN, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    subprocess.run([*torchrun, *TRAIN, *PLAIN, "--out", str(ranks)], check=True, stdout=subprocess.DEVNULL)
    return {"nccl_vs_alone": farthest(alone, ranks), "alone_vs_alone": farthest(alone, again)}


def killed_and_resumed(place: Path) -> dict[str, Any]:
    whole, again, broken = (place / name for name in ("whole", "whole-again", "broken"))
    for folder in (whole, again):
        subprocess.run([sys.executable, *TRAIN, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, *TRAIN, "--out", str(broken)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    records = broken / "records.jsonl"
    while process.poll() is None and not (records.exists() and records.read_text().count("\n") >= 4):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(losses(broken))
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL)
    return {"killed_after_epochs": done, "epochs": len(losses(broken)), "resumed_vs_whole": farthest(whole, broken)} | {
        "whole_vs_whole": farthest(whole, again)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    about = {"command": "python benchmarks/nccl.py", **environment(torch.device("cuda"))}
    with tempfile.TemporaryDirectory(prefix="nccl-") as place:
        found = under_torchrun(Path(place)) | killed_and_resumed(Path(place))
    write_json(arguments.out, about | found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
