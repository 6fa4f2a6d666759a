"""Progress during training: the live display within 80 columns, and TensorBoard files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from proud.cli import main as cli
from proud.errors import UserError
from proud.training.loop import Progress
from proud.training.progress import TrainingBar
from proud.training.tensorboard import TensorBoard
from toy import write_folders

RECORD = {"epoch": 3, "losses": {"loss": 1.2345, "ce": 0.8, "pml": 2.1}, "test_accuracy": 0.512, "val_accuracy": 0.9}
SITE = {"uncertainty": 1.2, "lambda": 0.25, "accuracy": 0.61}


def test_the_bar_fits_80_columns() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    sites = {"[red]north[/red]": SITE} | {f"a site with quite a long name {place}": SITE for place in range(12)}
    with TrainingBar("proud", console=console) as bar:
        bar(Progress("main", 3, 20, 4, 4))
        bar(Progress("main", 3, 20, 4, 4, RECORD | {"domains": sites}))
    text = out.getvalue().rpartition("proud main")[2]
    for word in ("left", "epoch 3/20", "test 51.2 %", "loss 1.234", "[red]north", "61.0 % right", "λ 0.250", "5 more"):
        assert word in text, word
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_the_bar_shows_why_it_waits() -> None:
    out = io.StringIO()
    with TrainingBar("proud", console=Console(file=out, width=80, force_terminal=True, color_system=None)) as bar:
        bar(Progress("main", 1, 20, 0, 4, note="compiling"))
        bar.bars.refresh()
        assert "proud main" in out.getvalue() and "compiling" in out.getvalue()
        bar(Progress("main", 1, 20, 1, 4))
        assert bar.bars.below is None
        bar(Progress("main", 3, 20, 4, 4, RECORD))
        bar(Progress("main", 4, 20, 0, 4))
        assert bar.bars.below is not None  # the latest numbers stay


def test_tensorboard_gets_scalars_and_pairs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    root = write_folders(tmp_path / "data", {"a": 0, "b": 1, "c": 2})
    command = f"train --data {root} --labeled a --test c --epochs 1 --pretrain-epochs 1 --batch-size 8 --model digits"
    command += f" --out {tmp_path / 'run'} --device cpu --threads 1 --quiet --tensorboard"
    assert cli.run([*command.split(), "--size", "16"]) == 0
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    scalars = found.Tags()["scalars"]
    for name in ("main/loss/loss", "main/test_accuracy", "main/b/lambda", "main/b/accuracy", "pretrain/val_accuracy"):
        assert name in scalars, name
    assert any(tag.startswith("pairs/mixed") for tag in found.Tags()["images"])


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"proud\[tensorboard\]"):
        TensorBoard(tmp_path, resume=False)
