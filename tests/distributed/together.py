"""What the tests train, alone or by several processes: `torchrun ... together.py FOLDER DATA`"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from proud.cli import train as cli_train
from proud.cli.exit import exit_code
from proud.cli.main import run as run_command
from proud.config import Options
from proud.data.types import Task
from proud.distributed.group import ALONE, Group
from proud.distributed.ranks import join
from proud.errors import UserError
from proud.methods.context import Context
from proud.nets.models import Net
from proud.training.run import train
from toy import as_domain, task_from, toy_images, toy_run, toy_settings

RESNET = {"model": "test_resnet", "weights": "none", "size": 32}
EFFICIENTNET = RESNET | {"model": "test_efficientnet"}  # its batch norms have activations behind them
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "proud": ("proud", {}, {}),
    "weighted": ("proud-plus", {"lr": 0.005}, {}),
    "second opinion": ("proud-plus", {"lr": 0.005}, RESNET),
    "domain statistics": ("proud", {"lr": 0.005, "epochs": 1}, EFFICIENTNET),
    "labeled alone": ("erm-noisemix", {"epochs": 1}, {}),
}


def task_of(side: int, per_class: int = 3) -> Task:
    hidden = [as_domain(f"hidden {t}", *toy_images(t, per_class)) for t in (1, 2)]
    return task_from(toy_images(0, per_class), hidden, toy_images(3, per_class, seed=1), size=side)


def one_run(name: str, folder: Path, group: Group = ALONE, double: bool = True, **more: Any) -> None:
    method, settings, network = RUNS[name]
    task = task_of(network.get("size", 16))
    settings = {"epochs": 2, "pretrain_epochs": 1, "batch_size": 12} | settings
    options = Options(out=str(folder / name), threads=1, device="cpu", quiet=True, resume=more.pop("resume", False))
    run = toy_run(method, task, **network)
    with pytest.MonkeyPatch.context() as patch:
        if double:
            compute_in_double(patch)
        train(run, toy_settings(method, **settings), options, data=task, group=group, **more)


def compute_in_double(patch: pytest.MonkeyPatch) -> None:
    """In float32 a network differs by more than rounding as soon as one ReLU's input changes its sign by rounding."""
    features, build = Net.features, Net.__init__

    def build_in_double(net: Net, *arguments: Any) -> None:
        build(net, *arguments)
        net.double()
        net.head.register_forward_pre_hook(lambda head, inputs: (inputs[0].double(),))

    patch.setattr(Net, "features", lambda net, x: features(net, x.double()))
    patch.setattr(Net, "__init__", build_in_double)


def small_chunks() -> None:
    """Several chunks per domain, of a size that two and three processes cannot divide evenly."""
    Context.chunk_size = property(lambda self: 7)  # type: ignore[assignment]


def refused(group: Group, method: str, batch_size: int, folder: Path) -> str:
    """What this rank reports of such a run."""
    try:
        task = task_of(16, per_class=2)
        options = Options(out=str(folder / "refused"), threads=1, device="cpu", quiet=True)
        train(toy_run(method, task), toy_settings(method, batch_size=batch_size), options, data=task, group=group)
    except UserError as error:
        return str(error)
    except SystemExit:
        return "silent"
    return "trained"


def endless(data: str, out: Path) -> list[str]:
    """Flags of a run that will not end by itself."""
    flags = "--labeled a --test c --method erm --model digits --size 16 --device cpu --threads 1 --quiet --val 0"
    flags += " --epochs 100000 --pretrain-epochs 1 --batch-size 4 --lr 0.001"
    return ["--data", data, "--out", str(out), *flags.split()]


def main() -> None:
    folder, data = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    small_chunks()
    with join("cpu") as group:
        for name in RUNS:
            one_run(name, folder, group)
        while not (folder / "stopped").exists():  # a process alone begins the run that these continue
            time.sleep(0.02)
        one_run("proud", folder / "resumed", group, resume=True)
        reports = [refused(group, "fixmatch", 4, folder), refused(group, "erm", 5, folder)]
        (folder / f"reports-{group.rank}.json").write_text(json.dumps(reports))
        # one more, by the command line: it trains until a process is killed. A second rendezvous of the same processes
        # could find the addresses of the first
        cli_train.join = lambda device: nullcontext(group)
        code = exit_code(lambda: run_command(["train", *endless(data, folder / "endless")]))
    sys.exit(code)


if __name__ == "__main__":
    main()
