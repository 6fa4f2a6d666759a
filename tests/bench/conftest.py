"""A tiny benchmark of four made-up domains, and a bench over it that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from proud.cli.bench import BenchArguments

DOMAINS = ("one", "two", "three", "four")


def write_domains(
    root: Path, domains: tuple[str, ...], classes: list[str], per_class: int, side: int = 12, seed: int = 0
) -> Path:
    random = np.random.default_rng(seed)
    for domain in domains:
        for label in classes:
            folder = root / domain / label
            folder.mkdir(parents=True)
            for number in range(per_class):
                Image.fromarray(random.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return root


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("data") / "tiny", DOMAINS, ["a", "b"], 4)


@pytest.fixture
def arguments(tiny: Path, tmp_path: Path) -> Callable[..., BenchArguments]:
    def make(**changes: Any) -> BenchArguments:
        usual: dict[str, Any] = {
            "name": str(tiny),
            "out": str(tmp_path / "out"),
            "methods": "erm",
            "seeds": "1",
            "combos": "one:two,two:one",
            "epochs": 1,
            "pretrain_epochs": 1,
            "set": ("batch_size=4",),
            "model": "digits",
            "weights": "none",
            "size": 16,
            "device": "cpu",
            "threads": 1,
            "quiet": True,
        }
        return BenchArguments(**usual | changes)

    return make


@pytest.fixture
def start_worker() -> Callable[[BenchArguments], subprocess.Popen[str]]:
    """A bench in a process of its own, which may be killed."""

    def start(arguments: BenchArguments) -> subprocess.Popen[str]:
        code = (
            "import sys; from pathlib import Path, PosixPath; from proud.cli.bench import *; "
            f"sys.exit(bench({arguments!r}))"
        )
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([sys.executable, "-c", code], **pipes)

    return start
