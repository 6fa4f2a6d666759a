"""The demo with hardly any training: both methods run, a stopped demo continues, and the table compares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proud.cli import demo
from proud.cli import main as cli
from proud.data import embedded
from proud.errors import UserError
from proud.methods import presets
from proud.training import loop
from proud.training.progress_lines import TrainingLines


@pytest.fixture
def hardly_any_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few images, and just enough epochs for a stop between two of them."""
    short = {"epochs": 2, "pretrain_epochs": 1, "batch_size": 16, "views": 1}
    monkeypatch.setitem(presets.PRESETS, "embedded", presets.PRESETS["embedded"] | short)
    monkeypatch.setattr(embedded, "PER_CLASS", 2)
    embedded.load_embedded.cache_clear()
    yield
    embedded.load_embedded.cache_clear()


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_the_demo_compares_both_methods_and_suggests_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    for method in demo.METHODS:  # an earlier demo is replaced
        (out / method).mkdir(parents=True)
        (out / method / "run.json").write_text("{}")
    assert cli.run(["demo", "--out", str(out)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for word in ("source-only (ERM)", "ProUD", "texture", "print", "street", "points", "proud train --data ROOT"):
        assert word in output, word
    assert (out / "proud-plus" / "model" / "model.json").is_file()
    assert (out / "erm" / "model" / "model.json").is_file()
    assert (out / "report.html").resolve().as_uri() in output
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "pen labeled, street unseen" in page and "proud" in page


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_a_stopped_demo_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    show = TrainingLines.__call__

    def stop(self: TrainingLines, now: loop.Progress) -> None:
        if (now.stage, now.epoch) == ("main", 1):
            raise demo.Stopped
        show(self, now)

    command = ["demo", "--out", str(tmp_path / "demo")]
    for _ in range(2):  # a second demo replaces the first, and continues after a stop as well
        with monkeypatch.context() as patched:
            patched.setattr(TrainingLines, "__call__", stop)
            assert cli.run(command) == 130
        assert "The same command continues" in capsys.readouterr().out
        before = (tmp_path / "demo" / "erm" / "run.json").read_bytes()
        assert cli.run(command) == 0
        assert (tmp_path / "demo" / "erm" / "run.json").read_bytes() == before
        assert (tmp_path / "demo" / "report.html").is_file()


def test_the_demo_changes_no_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="has other files"):
        cli.run(["demo", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
