"""The demo with hardly any training: both methods run, a stopped demo continues, and the table compares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proud.cli import main as cli
from proud.data import embedded
from proud.errors import Stopped, UserError
from proud.methods import presets
from proud.model import adapt
from proud.training import loop
from proud.training.progress_lines import TrainingLines


@pytest.fixture
def hardly_any_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few images, and just enough epochs for a stop between two of them."""
    short = {"epochs": 2, "pretrain_epochs": 1, "batch_size": 16, "views": 1}
    monkeypatch.setitem(presets.PRESETS, "embedded", presets.PRESETS["embedded"] | short)
    monkeypatch.setattr(embedded, "PER_CLASS", 2)
    monkeypatch.setattr(adapt, "FEWEST_PER_CLASS", 2)
    embedded.load_embedded.cache_clear()
    yield
    embedded.load_embedded.cache_clear()


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_the_demo_compares_both_methods_and_suggests_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert cli.run(["demo", "--out", str(out)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for word in (
        "source-only (ERM)",
        "ProUD",
        "texture",
        "print",
        "street",
        "points",
        "all of its images together",
        "proud train",
    ):
        assert word in output, word
    assert (out / "proud-plus" / "model" / "model.json").is_file()
    assert (out / "erm" / "model" / "model.json").is_file()
    assert (out / "report.html").resolve().as_uri() in output
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "pen labeled, street unseen" in page and "proud" in page
    assert all(word in page for word in ("Adapting to the unseen site", "image by image", "all images together"))


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_a_stopped_demo_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    show = TrainingLines.__call__

    def stop(self: TrainingLines, now: loop.Progress) -> None:
        if (now.stage, now.epoch) == ("main", 1):
            raise Stopped
        show(self, now)

    command = ["demo", "--out", str(tmp_path / "demo")]
    for _ in range(2):  # a second demo replaces the first, and continues after a stop as well
        with monkeypatch.context() as patched:
            patched.setattr(TrainingLines, "__call__", stop)
            assert cli.run(command) == 130
        assert "The same command continues" in capsys.readouterr().err
        before = (tmp_path / "demo" / "erm" / "run.json").read_bytes()
        assert cli.run(command) == 0
        assert (tmp_path / "demo" / "erm" / "run.json").read_bytes() == before
        assert (tmp_path / "demo" / "report.html").is_file()


def test_the_demo_changes_no_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="has other files"):
        cli.run(["demo", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_demo_replaces_nothing_that_it_did_not_write(tmp_path: Path) -> None:
    """Runs named as the demo's are not a demo."""
    for name in ("erm/run.json", "erm/notes.txt", "proud/run.json", "report.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match="has other files"):
        cli.run(["demo", "--out", str(tmp_path)])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 4


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_a_second_demo_keeps_what_others_put_into_the_first(tmp_path: Path) -> None:
    assert cli.run(["demo", "--out", str(tmp_path)]) == 0
    mine = [tmp_path / name for name in ("notes.txt", "erm/notes.txt", "erm/model/notes.txt", "mine/run.json")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert cli.run(["demo", "--out", str(tmp_path)]) == 0
    assert all(path.read_text() == "mine" for path in mine)


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_a_run_that_someone_else_put_into_a_demo_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    assert cli.run(["demo", "--out", str(out)]) == 0
    flags = "--labeled pen --method erm --epochs 1 --pretrain-epochs 1 --batch-size 16 --device cpu --quiet"
    assert cli.run(["train", *flags.split(), "--out", str(out / "erm"), "--overwrite"]) == 0
    mine = (out / "erm" / "run.json").read_bytes()
    with pytest.raises(UserError, match="holds a run with other settings"):
        cli.run(["demo", "--out", str(out)])
    assert (out / "erm" / "run.json").read_bytes() == mine


@pytest.mark.usefixtures("hardly_any_training", "without_figures")
def test_a_demo_with_another_seed_continues_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: TrainingLines, now: loop.Progress) -> None:
        raise Stopped

    command = ["demo", "--out", str(tmp_path)]
    assert cli.run(command) == 0
    with monkeypatch.context() as patched:
        patched.setattr(TrainingLines, "__call__", stop)
        assert cli.run([*command, "--seed", "7"]) == 130
    assert cli.run([*command, "--seed", "7"]) == 0
    assert all('"seed": 7' in (tmp_path / name / "run.json").read_text() for name in ("erm", "proud-plus"))
