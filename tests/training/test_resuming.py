"""Runs that continue, or may not: other settings, other images, occupied folders, full disks."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proud import files
from proud.config import Options, RunConfig
from proud.errors import UserError
from proud.machine import Stopped
from proud.model.load import load_model
from proud.training import loop
from proud.training.run import train
from toy import SIDE, edit_json, toy_run, toy_settings, toy_task, write_folders


def go(
    folder: Path, watch: Any = lambda now: None, resume: bool = False, overwrite: bool = False, **changes: Any
) -> Any:
    task = toy_task(per_class=3)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=resume, overwrite=overwrite)
    settings = toy_settings("erm", epochs=3, pretrain_epochs=1, **changes)
    return train(toy_run("erm", task), settings, options, data=task, watch=watch)


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its third epoch."""

    def stop(now: loop.Progress) -> None:
        if (now.stage, now.epoch) == ("main", 2):
            raise Stopped

    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
        go(folder, watch=stop)
    return folder


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A copy of it for each test."""
    return shutil.copytree(stopped_once, tmp_path / "stopped")


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, never stopped. No test may change it."""
    folder = tmp_path_factory.mktemp("whole")
    go(folder)
    return folder


def test_a_damaged_checkpoint_costs_one_epoch_and_no_bit(stopped: Path, whole: Path) -> None:
    newest = max((stopped / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        go(stopped, resume=True)
    for name in ("records.jsonl", "model/model.safetensors"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()


def test_resuming_with_other_settings_shows_the_difference(stopped: Path) -> None:
    before = files_in(stopped)
    with pytest.raises(UserError, match=r"lr: 0\.02 → 0\.5"):
        go(stopped, resume=True, lr=0.5)
    assert files_in(stopped) == before


def test_resuming_with_changed_code_warns(stopped: Path) -> None:
    path = stopped / "run.json"
    about = json.loads(path.read_text())
    assert len(about["code"]) == 12
    edit_json(path, code="0123456789ab")
    with pytest.warns(UserWarning, match=r"The code of erm has changed since the run in .* started"):
        go(stopped, resume=True)
    assert json.loads(path.read_text())["code"] == f"0123456789ab {about['code']}"


def test_resuming_with_other_test_images_is_refused(stopped: Path) -> None:
    path = stopped / "run.json"
    about = json.loads(path.read_text())
    (test,) = (name for name, domain in about["task"]["domains"].items() if domain["role"] == "test")
    about["task"]["content"][test] = "another"
    edit_json(path, task=about["task"])
    with pytest.raises(UserError, match=f"{test}: other images or labels"):
        go(stopped, resume=True)


def test_resuming_with_other_images_is_refused(stopped: Path) -> None:
    task = toy_task(per_class=4)
    options = Options(out=str(stopped), threads=1, quiet=True, device="cpu", resume=True)
    with pytest.raises(UserError, match=r"differ from those that the run .* started with[^$]*images: 12 → 16"):
        train(toy_run("erm", task), toy_settings("erm", epochs=3, pretrain_epochs=1), options, data=task)


def test_resuming_after_one_image_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_folders(tmp_path / "data", {"central": 0, "north": 1}, per_class=3)

    def go_on(resume: bool, watch: Any = lambda now: None) -> None:
        run = RunConfig(data=str(root), labeled="central", method="erm", model="digits", size=SIDE)
        options = Options(out=str(tmp_path / "run"), threads=1, quiet=True, device="cpu", resume=resume)
        train(run, toy_settings("erm", epochs=3, pretrain_epochs=1), options, watch=watch)

    def stop(now: loop.Progress) -> None:
        if now.stage == "main":
            raise Stopped

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Stopped):
        go_on(False, stop)
    path = next((root / "north").rglob("*.png"))
    kept, pixels = path.read_bytes(), np.array(Image.open(path))
    pixels[0, 0] ^= 255
    Image.fromarray(pixels).save(path)
    with pytest.raises(UserError, match="north: other images or labels"):
        go_on(True)
    path.write_bytes(kept)
    go_on(True)


def test_an_occupied_folder_is_refused_and_kept(stopped: Path) -> None:
    before = files_in(stopped)
    with pytest.raises(UserError, match="--resume, or replace it with --overwrite"):
        go(stopped)
    with pytest.raises(UserError, match="exclude each other"):
        go(stopped, resume=True, overwrite=True)
    assert files_in(stopped) == before
    mine = [stopped / name for name in ("notes.txt", "README.md")]
    for path in mine:
        path.write_text("mine")
    go(stopped, overwrite=True)
    assert [path.read_text() for path in mine] == ["mine", "mine"]


def test_overwrite_removes_the_model_of_an_earlier_version(tmp_path: Path) -> None:
    """Where model files were beside run.json: the old model must not be taken for the new run's."""
    go(tmp_path)
    for path in (tmp_path / "model").iterdir():
        path.rename(tmp_path / path.name)

    def stop(now: loop.Progress) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        go(tmp_path, stop, overwrite=True)
    with pytest.raises(UserError, match="its training has not finished"):
        load_model(tmp_path)


def test_overwrite_keeps_the_old_run_until_the_new_one_can_start(whole: Path) -> None:
    before = files_in(whole)
    options = Options(out=str(whole), quiet=True, overwrite=True)
    run = toy_run("erm", data=str(whole / "nowhere"), labeled="central")
    with pytest.raises(UserError, match="nowhere"):
        train(run, toy_settings("erm"), options)
    assert files_in(whole) == before


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="do not belong to a run"):
        go(tmp_path, overwrite=True)
    (tmp_path / "run.json").write_text('{"format": "something else"}')
    with pytest.raises(UserError, match=r"does not hold a run: run.json cannot be read \(format: "):
        go(tmp_path, resume=True)


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file, not a folder"):
        go(tmp_path / "file")
    with pytest.raises(UserError, match=r"Cannot write to .*Not a directory"):
        go(tmp_path / "file" / "below")

    def refuse(self: Path, *arguments: Any, **more: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(UserError, match=r"Cannot write to .*Permission denied"):
        go(tmp_path / "new")


def test_a_full_disk_is_one_clear_error_and_the_last_checkpoint_stays(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    real, calls = files.os.fsync, []

    def fill(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as disk:
        disk.setattr(files.os, "fsync", fill)
        with pytest.raises(UserError, match="No space left on device"):
            go(tmp_path / "cut")
    go(tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()


def test_a_finished_run_is_not_run_again(whole: Path) -> None:
    result = json.loads((whole / "result.json").read_text())
    again = go(whole, resume=True, watch=lambda now: pytest.fail("trained again"))
    assert again == result | {"folder": str(whole)}


def test_a_finished_run_that_was_moved_gives_its_result_from_where_it_is(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "there")
    result = json.loads((whole / "result.json").read_text())
    moved = go(tmp_path / "there", resume=True, watch=lambda now: pytest.fail("trained again"))
    assert moved == result | {"folder": str(tmp_path / "there")}
