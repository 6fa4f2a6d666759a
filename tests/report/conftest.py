"""Small runs on data with unsafe names, and a report, for all tests of this folder."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from proud.config import Options
from proud.data.types import Task
from proud.report.figures.style import Chart, chart_files, panel_png
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
    """Short runs of several methods, one of them without a part. Not to be changed: tests copy them."""
    torch.set_num_threads(1)
    folder, task = tmp_path_factory.mktemp("runs"), hostile_task()
    for name, method, more in (
        ("whole", "proud", {}),
        ("no-pml", "proud", {"pml": False}),
        ("plus", "proud-plus", {}),
        ("erm", "erm", {}),
    ):
        settings = toy_settings(method, epochs=3, pretrain_epochs=3, **more)
        options = Options(out=str(folder / name), device="cpu", threads=1, quiet=True)
        train(toy_run(method), settings, options, data=task)
    return folder


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With real figures, in few pixels; of the files beside it, one of each kind is drawn."""
    drawn: dict[str, dict[str, bytes]] = {}

    def one_of_each_kind(chart: Chart) -> dict[str, bytes]:
        kind = re.sub(r"-\d.*", "", chart.name)
        if kind not in drawn:
            drawn[kind] = chart_files(chart)
        return drawn[kind]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proud.report.page.panel_png", partial(panel_png, dpi=50))
        patch.setattr("proud.report.page.chart_files", one_of_each_kind)
        patch.setattr("proud.report.figures.style.FILE_DPI", 50)
        page = write_report([runs / "whole", runs / "no-pml"], tmp_path_factory.mktemp("report") / "report.html")
    assert {"curves", "features", "pairs-first", "pairs-last", "certain", "confusion", "reliability"} == set(drawn)
    return page
