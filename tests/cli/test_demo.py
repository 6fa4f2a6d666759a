"""The demo's course with hardly any training: both methods run, and the table says what came out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proud import cli, console, presets
from proud.data import embedded
from proud.errors import UserError
from proud.training import loop


@pytest.fixture
def hardly_any_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few images, and as many epochs as a run can be stopped in."""
    hardly = presets.PRESETS["embedded"] | {"epochs": 2, "pretrain_epochs": 1, "batch_size": 16}
    monkeypatch.setitem(presets.PRESETS, "embedded", hardly)
    monkeypatch.setattr(embedded, "PER_CLASS", 4)
    embedded.load_embedded.cache_clear()
    yield
    embedded.load_embedded.cache_clear()


@pytest.mark.usefixtures("hardly_any_training")
def test_the_demo_compares_both_and_says_what_to_type_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    for method in ("erm", "proud"):  # a demo replaces the one before it
        (out / method).mkdir(parents=True)
        (out / method / "run.json").write_text("{}")
    assert cli.run(["demo", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for word in ("source-only (ERM)", "ProUD", "texture", "print", "street", "points", "proud train --data ROOT"):
        assert word in said, word
    assert (out / "proud" / "model.json").is_file()
    assert (out / "erm" / "model.json").is_file()
    assert (out / "report.html").resolve().as_uri() in said
    assert (out / "report.html").is_file()


@pytest.mark.usefixtures("hardly_any_training")
def test_a_stopped_demo_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    show = console.TrainingBar.__call__

    def stop(self: console.TrainingBar, now: loop.Progress) -> None:
        if (now.stage, now.epoch) == ("main", 1):
            raise loop.Stopped
        show(self, now)

    command = ["demo", "--out", str(tmp_path / "demo")]
    with monkeypatch.context() as patched:
        patched.setattr(console.TrainingBar, "__call__", stop)
        assert cli.run(command) == 130
    assert "The same command goes on" in capsys.readouterr().out
    before = (tmp_path / "demo" / "erm" / "run.json").read_bytes()
    assert cli.run(command) == 0
    assert (tmp_path / "demo" / "erm" / "run.json").read_bytes() == before
    assert (tmp_path / "demo" / "report.html").is_file()
    with monkeypatch.context() as patched:  # a second demo, stopped: it goes on as well
        patched.setattr(console.TrainingBar, "__call__", stop)
        assert cli.run(command) == 130
    before = (tmp_path / "demo" / "erm" / "run.json").read_bytes()
    assert cli.run(command) == 0
    assert (tmp_path / "demo" / "erm" / "run.json").read_bytes() == before


def test_the_demo_touches_no_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="holds other files"):
        cli.run(["demo", "--out", str(tmp_path)])
