"""Progress without a terminal: lines that arrive as they are written, with the time left; estimates."""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from proud import ProUD, UserError
from proud.config import Options
from proud.data import decode
from proud.machine import Memory
from proud.methods.base import Stage
from proud.printing import make_console
from proud.text import duration, file_size
from proud.training import forecast, progress_lines
from proud.training.forecast import Forecast, StageWork
from proud.training.loop import Progress
from proud.training.progress import TrainingBar
from proud.training.progress_lines import Silent, TrainingLines, watching
from proud.training.run import train
from toy import SHORT, toy_images, toy_run, toy_settings, toy_task, write_folders

SITES = {"north": {"certain": 0.84, "uncertainty": 0.2}, "so\x1buth": {"uncertainty": 1.25}, "west": {}}
RECORD = {
    "epoch": 3,
    "losses": {"loss": 1.2345, "ce": 0.8},
    "val_accuracy": 0.9,
    "test_accuracy": 0.5,
    "domains": SITES,
}
FLAGS = "--test none --size 16 --epochs 2 --pretrain-epochs 1 --batch-size 16 --threads 1 --device cpu"


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


# after each epoch's line the child waits for a line of its input
CHILD = """
import sys
from proud.cli.main import run
from proud.training.progress_lines import TrainingLines
show = TrainingLines.__call__
def show_and_wait(self, now):
    show(self, now)
    if now.record:
        sys.stdin.readline()
TrainingLines.__call__ = show_and_wait
sys.exit(run(sys.argv[1:]))
"""


def test_a_pipe_gets_each_line_when_its_epoch_ends(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=6)
    command = ["train", "--data", str(root), "--labeled", "central", "--out", str(tmp_path / "x"), *FLAGS.split()]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for epoch in ("pretrain 1/1", "main 1/2", "main 2/2"):
            line = next(line for line in child.stdout if f"{epoch}  loss" in line)  # while the child waits
            assert re.match(r"\d:\d\d:\d\d  \w+ \d/\d  loss \d+\.\d+  ", line), line
            assert child.poll() is None
            if epoch.startswith("main"):
                assert re.search(r"north \d+ % certain", line) and "pml" in line
            child.stdin.write("\n")
            child.stdin.flush()
        assert "last pass over all images" in child.stdout.read()
        assert child.wait() == 0


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """No time passes."""
    clock = Clock()
    monkeypatch.setattr(progress_lines, "time", clock)
    return clock


def lines_of(show: Callable[[TrainingLines], None]) -> list[str]:
    console = make_console()
    console.file = out = io.StringIO()
    show(TrainingLines("proud", console))
    return out.getvalue().splitlines()


@pytest.mark.usefixtures("still")
def test_a_line_has_losses_accuracies_sites_and_the_time_left() -> None:
    def show(lines: TrainingLines) -> None:
        lines(Progress("main", 3, 20, 0, 4))
        lines(Progress("main", 3, 20, 2, 4, left=840.0))
        lines(Progress("main", 3, 20, 4, 4, RECORD, left=840.0))

    assert lines_of(show) == [
        "0:00:00  proud main: 20 epochs of 4 steps",
        "0:00:00  main 3/20  loss 1.234  ce 0.800  val 90.0 %  test 50.0 %  north 84 % certain  "
        "so\\x1buth uncertainty 1.25  about 14 min left",
    ]


def test_a_long_epoch_and_what_it_waits_for_are_shown(still: Clock) -> None:
    def show(lines: TrainingLines) -> None:
        lines(Progress("main", 1, 20, 0, 4, note="compiling"))
        for step in (1, 2, 3):
            still.now += 40
            lines(Progress("main", 1, 20, step, 4, left=7900.0))

    assert lines_of(show)[1:] == [
        "0:00:00  main 1/20  compiling",
        "0:01:20  main 1/20  step 2/4  about 2 h 10 min left",
    ]


def test_bars_are_for_terminals_only() -> None:
    def kind(verbose: bool | None, terminal: bool) -> type:
        return type(watching("proud", verbose, Console(file=io.StringIO(), force_terminal=terminal)))

    assert kind(True, True) is kind(None, True) is TrainingBar
    assert kind(True, False) is TrainingLines
    assert kind(False, True) is kind(False, False) is kind(None, False) is Silent


def test_python_prints_lines_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"labeled": toy_images(0, 2), "unlabeled": [toy_images(1, 2)[0]]}
    short = SHORT | {"epochs": 1, "pretrain_epochs": 1, "method": "erm"}
    for verbose in (None, False):
        ProUD(**short, verbose=verbose).fit(**data)
        assert capsys.readouterr().out == ""
    ProUD(**short, verbose=True).fit(**data)
    assert "main 1/1  loss" in capsys.readouterr().out
    with pytest.raises(UserError, match="verbose must be True, False or None, got 2"):
        ProUD(**short, verbose=2).fit(**data)
    with pytest.raises(UserError, match=r"has no setting 'quiet'\. In Python it is verbose=False"):
        ProUD(**short, quiet=True).fit(**data)


def test_reading_images_is_shown_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decode, "SECONDS_BEFORE_BAR", 0.0)
    monkeypatch.setattr(decode, "SECONDS_BETWEEN_LINES", math.inf)
    assert list(decode.with_bar([3, 3, 2], 8, True, "Decoding nor\x1bth")) == [3, 3, 2]
    assert capsys.readouterr().err == "Decoding nor\\x1bth: 3 of 8\n"


# ---- how long it will take


def test_the_time_left_follows_the_work_of_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(forecast, "time", clock)
    first, then = Stage("pretrain", 2, 4, {"labeled": 8}), Stage("main", 3, 5, {"labeled": 8, "unlabeled": 10})
    seen: list[Progress] = []
    work = [StageWork(first, 1.0, 0.0, 8), StageWork(then, 4.0, 10.0, 16)]
    watch = Forecast(seen.append, work, Memory(torch.device("cpu")), 5e6, "Faster: less.")

    def pass_on(stage: Stage, epoch: int, step: int, seconds: float) -> Progress:
        clock.now += seconds
        watch(Progress(stage.name, epoch, stage.epochs, step, stage.steps))
        return seen[-1]

    assert pass_on(first, 1, 0, 0).left is None
    assert pass_on(first, 1, 1, 99).left is None, "the first step may compile"
    assert pass_on(first, 1, 2, 2).left == pytest.approx(2 * (6 + 3 * 30)), "2 seconds per unit of work"
    assert seen[-1].estimate is None
    found = pass_on(first, 1, 4, 4).estimate
    assert found is None
    found = pass_on(first, 2, 1, 2).estimate
    assert found is not None and found.seconds == pytest.approx(2 * 98) and found.advice == ""
    assert pass_on(first, 2, 2, 2).estimate is None, "once"
    assert pass_on(then, 1, 0, 0).left == pytest.approx(2 * 90)
    assert pass_on(then, 1, 1, 30).left == pytest.approx(2 * 76)
    assert pass_on(then, 1, 2, 4).left == pytest.approx(1 * 72), "this stage is faster than the work suggests"


@pytest.mark.parametrize("with_bf16", [False, True])
def test_long_runs_on_a_cpu_name_the_flags_that_help(with_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "computes_bf16", lambda: with_bf16)
    found = forecast.Estimate(840, 1.94e9, 2.6e8, "cpu", " Faster: fewer --epochs.")
    assert str(found) == (
        "Estimate: about 14 min on this CPU; 1.9 GB of memory and 260 MB of disk space. Faster: fewer --epochs."
    )
    task = toy_task(per_class=6)
    monkeypatch.setattr(forecast, "LONG_ON_CPU", 0.0)
    monkeypatch.setattr(forecast, "TIMED_SECONDS", 0.0)
    seen: list[Progress] = []
    run_with(task, seen.append, "proud")
    (told,) = [each.estimate for each in seen if each.estimate is not None]
    for flag in ("--epochs (now 4)", "--pretrain-epochs (now 4)", "--model (now digits)", "--batch-size (now 16)"):
        assert flag in told.advice
    assert ("--precision bf16" in told.advice) is with_bf16
    assert told.seconds > 0 and told.disk > 1e6 and told.memory > 1e6
    assert all(each.left is not None for each in seen if each.record)


def run_with(task: Any, watch: Callable[[Progress], None], method: str, quiet: bool = False) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        options = Options(out=folder, threads=1, device="cpu", quiet=quiet)
        train(toy_run(method, task), toy_settings(method), options, data=task, watch=watch)
        (model,) = Path(folder).rglob("model.safetensors")
        return model.read_bytes()


def test_the_estimate_does_not_change_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "TIMED_SECONDS", 0.0)
    task, seen = toy_task(per_class=6), []
    assert run_with(task, seen.append, "proud") == run_with(task, seen.append, "proud", quiet=True)
    assert any(each.estimate for each in seen)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (5900, "98 min"), (7800, "2 h 10 min"), (2e5, "2 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == f"about {text}"


def test_sizes_of_files() -> None:
    assert [file_size(count) for count in (3e5, 3.4e7, 1.94e9)] == ["1 MB", "34 MB", "1.9 GB"]
