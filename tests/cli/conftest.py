"""Three small sites and a model of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proud.cli import main as cli
from toy import write_folders

FLAGS = (
    "--size 16 --epochs 4 --pretrain-epochs 6 --batch-size 16 --lr 0.02 --threads 1 --device cpu "
    "--weight-decay 0.0005 --least-steps 1 --method proud"
)
ONE_EPOCH = ("--epochs", "1", "--pretrain-epochs", "1")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed: tests copy it."""
    root = tmp_path_factory.mktemp("data")
    write_folders(root, {"central": 0, "north": 1}, per_class=12)
    write_folders(root, {"south": 2}, per_class=6, suffix=".jpg")
    return root


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed: tests copy it."""
    out = tmp_path_factory.mktemp("runs") / "x"
    assert train(data, out) == 0
    return out


def train(data: Path, out: Path, *more: str, labeled: str = "central", test: str = "none", quiet: bool = True) -> int:
    where = ["--data", str(data), "--labeled", labeled, "--test", test, "--out", str(out)]
    return cli.run(["train", *where, *FLAGS.split(), *more, *(["--quiet"] if quiet else [])])
