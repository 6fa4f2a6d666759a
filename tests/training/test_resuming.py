"""Runs that go on, or may not: other settings, other images, occupied folders, full disks, earlier versions."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proud.config import Options, RunConfig
from proud.errors import UserError
from proud.methods import method_config
from proud.training import files, loop
from proud.training.run_folder import completed, config_difference
from proud.training.loop import Stopped
from proud.training.run import train
from toy import SIDE, toy_run, toy_settings, toy_task, write_folders


def begin(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """A run that is stopped in its third epoch."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)

    def stop(now: loop.Progress) -> None:
        if (now.stage, now.epoch) == ("main", 2):
            raise Stopped

    with pytest.raises(Stopped):
        go(folder, watch=stop, **changes)


def go(
    folder: Path, watch: Any = lambda now: None, resume: bool = False, overwrite: bool = False, **changes: Any
) -> Any:
    task = toy_task(per_class=3)
    options = Options(out=str(folder), threads=1, quiet=True, device="cpu", resume=resume, overwrite=overwrite)
    settings = toy_settings("erm", epochs=3, pretrain_epochs=1, **changes)
    return train(toy_run("erm", task), settings, options, data=task, watch=watch)


def test_a_damaged_checkpoint_costs_one_epoch_and_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path / "whole")
    begin(tmp_path / "cut", monkeypatch)
    newest = max((tmp_path / "cut" / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        go(tmp_path / "cut", resume=True)
    for name in ("records.jsonl", "model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_resuming_with_other_settings_shows_the_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"lr: 0\.02 → 0\.5"):
        go(tmp_path, resume=True, lr=0.5)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_going_on_with_changed_code_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    path = tmp_path / "run.json"
    about = json.loads(path.read_text())
    assert len(about["code"]) == 12
    path.write_text(json.dumps(about | {"code": "0123456789ab"}))
    with pytest.warns(UserWarning, match=r"The code of erm has changed since the run in .* began"):
        go(tmp_path, resume=True)
    assert json.loads(path.read_text())["code"] == f"0123456789ab {about['code']}"


@pytest.mark.parametrize("commit", ["older", "same"])
def test_going_on_with_a_run_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str, recwarn: pytest.WarningsRecorder
) -> None:
    begin(tmp_path, monkeypatch)
    path = tmp_path / "run.json"
    about = json.loads(path.read_text())
    code = about.pop("code")
    path.write_text(json.dumps(about | ({"commit": "older"} if commit == "older" else {})))
    go(tmp_path, resume=True)
    told = any("code of erm has changed" in str(warning.message) for warning in recwarn)
    assert told == (commit == "older")
    assert json.loads(path.read_text()).get("code", "") == (f"earlier {code}" if told else "")


def test_resuming_with_other_test_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    path = tmp_path / "run.json"
    about = json.loads(path.read_text())
    (test,) = (name for name, domain in about["task"]["domains"].items() if domain["role"] == "test")
    about["task"]["content"][test] = "another"
    path.write_text(json.dumps(about))
    with pytest.raises(UserError, match=f"{test}: other images or labels"):
        go(tmp_path, resume=True)


def test_resuming_with_other_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    task = toy_task(per_class=4)
    options = Options(out=str(tmp_path), threads=1, quiet=True, device="cpu", resume=True)
    with pytest.raises(UserError, match=r"not those that the run .* began with[^$]*images: 12 → 16"):
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


def test_an_occupied_folder_is_refused_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    with pytest.raises(UserError, match="--resume, or replace it by --overwrite"):
        go(tmp_path)
    with pytest.raises(UserError, match="exclude each other"):
        go(tmp_path, resume=True, overwrite=True)
    (tmp_path / "notes.txt").write_text("mine")
    go(tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_overwrite_keeps_the_old_run_until_the_new_one_can_start(tmp_path: Path) -> None:
    go(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    options = Options(out=str(tmp_path), quiet=True, overwrite=True)
    run = toy_run("erm", data=str(tmp_path / "nowhere"), labeled="central")
    with pytest.raises(UserError, match="nowhere"):
        train(run, toy_settings("erm"), options)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(UserError, match="not a run's"):
        go(tmp_path, overwrite=True)
    (tmp_path / "run.json").write_text('{"format": "something else"}')
    with pytest.raises(UserError, match="not written by this program"):
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    go(tmp_path / "whole")
    assert (tmp_path / "cut" / "records.jsonl").read_bytes() == (tmp_path / "whole" / "records.jsonl").read_bytes()


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    first = go(tmp_path)
    assert go(tmp_path, resume=True, watch=lambda now: pytest.fail("trained again")) == first


# ---- files and records


def test_a_setting_that_an_older_run_does_not_name_had_its_default(tmp_path: Path) -> None:
    task, options = toy_task(per_class=3), Options(out=str(tmp_path), threads=1, quiet=True, device="cpu", resume=True)
    settings = toy_settings("proud", epochs=1, pretrain_epochs=1)
    result = train(toy_run("proud", task), settings, options, data=task)
    about = json.loads((tmp_path / "run.json").read_text())
    del about["config"]["method_config"]["joint_forward"], about["config"]["precision"]
    about["config"]["method_config"] |= {"no_more": False}
    (tmp_path / "run.json").write_text(json.dumps(about))
    assert train(toy_run("proud", task), settings, options, data=task) == result
    about["config"]["method_config"] |= {"no_more": True}
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match="no_more: True → None"):
        train(toy_run("proud", task), settings, options, data=task)


def test_a_default_that_has_changed_is_not_an_older_run_s() -> None:
    then: dict[str, Any] = {"method": "proud-plus", "method_config": {"threshold": 0.35}}
    now = {"method": "proud-plus", "method_config": asdict(method_config("proud-plus"))}
    differing = config_difference(completed(then), completed(now))
    assert differing == ["class_mix: labeled → even", "threshold: 0.35 → 0.15"]


def test_a_finished_run_that_was_moved_gives_its_result_from_where_it_is(tmp_path: Path) -> None:
    task, settings = toy_task(per_class=3), toy_settings("erm", epochs=1, pretrain_epochs=1)
    options = Options(out=str(tmp_path / "here"), threads=1, quiet=True, device="cpu")
    result = train(toy_run("erm", task), settings, options, data=task)
    (tmp_path / "here").rename(tmp_path / "there")
    there = Options(out=str(tmp_path / "there"), threads=1, quiet=True, device="cpu", resume=True)
    assert train(toy_run("erm", task), settings, there, data=task) == result | {"folder": str(tmp_path / "there")}
