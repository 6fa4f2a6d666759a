"""Two tiny runs on data with unsafe names, and their report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from proud.config import Options
from proud.data.types import Task
from proud.report.page import write_report
from proud.training.run import train
from toy import CLASSES, toy_run, toy_settings, toy_task

HOSTILE = "<script>alert(1)</script>"


def hostile_task() -> Task:
    """The toy task with HTML in the names of the first class and the first unlabeled domain."""
    task = toy_task(per_class=6)
    names = (HOSTILE, "$\\bad_{", "_hidden", "a\"'&b")
    assert len(names) == len(CLASSES)
    labeled = replace(task.training.labeled, classes=names)
    first = replace(task.training.unlabeled[0], name=f"{HOSTILE}/1")
    training = replace(task.training, classes=names, labeled=labeled, unlabeled=(first, *task.training.unlabeled[1:]))
    old = task.training.unlabeled[0].name
    audits = {first.name if name == old else name: audit for name, audit in task.evaluation.audits.items()}
    domains = {first.name if name == old else name: about for name, about in task.report["domains"].items()}
    report = task.report | {"classes": list(names), "domains": domains}
    return replace(task, training=training, evaluation=replace(task.evaluation, audits=audits), report=report)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of ProUD and one without PML."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    for name, pml in (("whole", True), ("no-pml", False)):
        settings = toy_settings("proud", epochs=3, pretrain_epochs=2, pml=pml)
        options = Options(out=str(folder / name), device="cpu", threads=1, quiet=True)
        train(toy_run("proud"), settings, options, task=hostile_task())
    return folder


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs], tmp_path_factory.mktemp("report") / "report.html")
