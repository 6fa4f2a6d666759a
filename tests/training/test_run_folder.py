"""Who may write a run's folder, what may be removed from it, and that nothing is written through links."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proud.config import Options
from proud.errors import Stopped, UserError
from proud.model.load import load_model
from proud.training import loop
from proud.training import run as runs
from proud.training.run import train
from toy import toy_run, toy_settings, toy_task

TASK = toy_task(unlabeled=1, per_class=2)


def go(folder: Path, seed: int = 1, watch: Any = lambda now: None, **options: Any) -> Any:
    given = Options(out=str(folder), threads=1, quiet=True, device="cpu", **options)
    settings = toy_settings("erm", epochs=2, pretrain_epochs=1, batch_size=4)
    return train(toy_run("erm", TASK, seed=seed, weights="none"), settings, given, data=TASK, watch=watch)


@pytest.fixture(autouse=True)
def _checkpoints_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)


def after_first_epoch(action: Callable[[], Any]) -> Callable[[loop.Progress], None]:
    done: list[int] = []

    def watch(now: loop.Progress) -> None:
        if now.record is not None and not done:
            done.append(1)
            action()

    return watch


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        go(tmp_path / "run", watch=after_first_epoch(stop))
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- two processes


@pytest.mark.parametrize("again", [True, False], ids=["another run", "an empty folder"])
def test_a_folder_that_was_put_in_its_place_is_not_written(again: bool, tmp_path: Path) -> None:
    """`rm -rf` of a running run's folder, and another run there."""
    folder, other = tmp_path / "run", tmp_path / "other"
    go(other, seed=2)

    def replace() -> None:
        shutil.rmtree(folder)
        shutil.copytree(other, folder) if again else folder.mkdir()

    with pytest.raises(UserError, match="was removed, moved or taken over by another process"):
        go(folder, watch=after_first_epoch(replace))
    assert contents(folder) == (contents(other) if again else {})


def test_a_moved_folder_is_left_alone_and_can_be_resumed(tmp_path: Path) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with pytest.raises(UserError, match="moved or taken over"):
        go(folder, watch=after_first_epoch(lambda: folder.rename(moved)))
    assert not folder.exists()
    go(moved, resume=True)
    go(tmp_path / "whole")
    assert (moved / "model/model.safetensors").read_bytes() == (tmp_path / "whole/model/model.safetensors").read_bytes()


def test_where_locks_do_not_work_the_second_process_stops_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may accept a lock and not keep it."""
    monkeypatch.setattr(fcntl, "flock", lambda handle, how: None)
    folder = tmp_path / "run"
    with pytest.raises(UserError, match="taken over by another process"):
        go(folder, watch=after_first_epoch(lambda: go(folder, resume=True)))
    go(tmp_path / "whole")
    for name in ("records.jsonl", "result.json", "model/model.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_without_locks_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(UserError, match="file system without locks"):
        go(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_records_that_others_change_in_mid_run_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    path = folder / "records.jsonl"
    for change in (path.unlink, lambda: path.write_text("{}\n"), lambda: path.open("a").write("{}\n")):
        with pytest.raises(UserError, match=r"was (changed|removed) while this run was writing it"):
            go(folder, watch=after_first_epoch(change))
        shutil.rmtree(folder)

    def edit() -> None:
        path.write_bytes(path.read_bytes().replace(b'"epoch": 1', b'"epoch": 3'))

    with pytest.raises(UserError, match="was changed while this run was writing it"):
        go(folder, watch=after_first_epoch(edit))
    assert not (folder / "result.json").exists()


# ---- what may be removed


def test_overwrite_keeps_files_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    go(folder, keep_checkpoints=True)
    names = ["notes.txt", "checkpoints/mine.safetensors", "checkpoints/checkpoint-000002-best.json", ".writable"]
    names += ["snapshots/mine.png", "model/mine.txt", ".download.part", "checkpoints/.mine.part", "folds/mine.txt"]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    go(folder, overwrite=True)
    assert all((folder / name).read_text() == "mine" for name in names)
    assert not list((folder / "checkpoints").glob("checkpoint-000003.*"))


def test_a_folder_that_only_looks_like_a_run_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"mine": 1}')
    (tmp_path / "records.jsonl").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="does not hold a run"):
        go(tmp_path, overwrite=True)
    assert contents(tmp_path) == before


def test_checkpoints_go_with_the_end_of_a_run_unless_they_are_kept(tmp_path: Path) -> None:
    go(tmp_path / "plain")
    assert not (tmp_path / "plain" / "checkpoints").exists()
    go(tmp_path / "kept", keep_checkpoints=True)
    assert len(list((tmp_path / "kept" / "checkpoints").iterdir())) == 4
    go(tmp_path / "kept", resume=True)
    assert not (tmp_path / "kept" / "checkpoints").exists()


def test_a_finished_run_that_lost_its_model_gets_it_back_from_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    go(folder, keep_checkpoints=True)
    whole = (folder / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(folder / "model")
    with pytest.raises(UserError, match=r"model\.json.*--resume"):
        load_model(folder, "cpu")
    with pytest.warns(UserWarning, match="is missing: it is made again from the last checkpoint"):
        go(folder, resume=True)
    assert (folder / "model" / "model.safetensors").read_bytes() == whole
    shutil.rmtree(folder / "model")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "notes.txt").write_text("not a checkpoint")
    for use in (lambda: go(folder, resume=True), lambda: load_model(folder, "cpu")):
        with pytest.raises(UserError, match="train again with --overwrite"):
            use()


def test_the_saved_model_is_the_trained_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: dict[str, Any] = {}
    real = runs.final_description

    def remember(loop: Any) -> Any:
        trained.update({name: value.clone() for name, value in loop.method.network().state_dict().items()})
        return real(loop)

    monkeypatch.setattr(runs, "final_description", remember)
    go(tmp_path / "run")
    saved = load_model(tmp_path / "run", "cpu").net.state_dict()
    assert trained.keys() == saved.keys()
    for name, value in trained.items():
        assert value.equal(saved[name]), name


# ---- links and special files


@pytest.mark.parametrize("name", ["records.jsonl", "timings.jsonl"])
def test_records_are_not_written_through_a_link(name: str, half_done: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    (half_done / name).rename(victim)
    before = victim.read_bytes()
    (half_done / name).symlink_to(victim)
    with pytest.raises(UserError, match=name):
        go(half_done, resume=True)
    assert victim.read_bytes() == before


@pytest.mark.parametrize("name", ["checkpoints", "snapshots", "model"])
def test_a_folder_that_is_a_link_is_refused(name: str, half_done: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "checkpoint-000001.json").write_text("mine")
    (elsewhere / ".x.01234567.proud-part").write_text("mine")
    shutil.rmtree(half_done / name, ignore_errors=True)
    (half_done / name).symlink_to(elsewhere)
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(UserError, match=f"{name} is a link or a special file"):
            go(half_done, **options)
        assert len(contents(elsewhere)) == 2


def test_pipes_in_place_of_files_are_refused(half_done: Path) -> None:
    (half_done / "records.jsonl").unlink()
    os.mkfifo(half_done / "records.jsonl")
    with pytest.raises(UserError, match=r"records\.jsonl"):
        go(half_done, resume=True)


# ---- files of another run


def test_a_checkpoint_of_another_run_is_not_used(half_done: Path, tmp_path: Path) -> None:
    """Of the same settings, on other images."""
    other = toy_task(unlabeled=1, per_class=2, seed=5)
    go(tmp_path / "other", keep_checkpoints=True)
    assert other is not TASK
    shutil.rmtree(half_done / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", half_done / "checkpoints")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match="no intact checkpoint"):
            go(half_done, resume=True)


def test_run_json_names_the_run_and_checks_itself(half_done: Path) -> None:
    path = half_done / "run.json"
    about = json.loads(path.read_text())
    assert len(about["id"]) == 16 and json.loads((half_done / ".proud").read_text())["id"] == about["id"]
    path.write_text(json.dumps(about | {"threads": about["threads"] + 1}))
    with pytest.raises(UserError, match="the checksum does not match"):
        go(half_done, resume=True)
