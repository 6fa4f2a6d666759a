"""`proud verify` finds every damaged file, and says what still works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proud.cli import main as cli
from proud.errors import UserError


def verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.run(["verify", str(folder)])
    return code, capsys.readouterr().out


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_an_undamaged_run_and_its_model(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (trained, trained / "model"):
        code, said = verify(folder, capsys)
        assert code == 0 and "files are intact" in said


def test_one_bit_of_any_file_is_found(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    names = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
    believed = [name for name in names if name not in (".proud", "model/README.md")]
    assert len(believed) > 10
    for name in believed:
        whole = (run / name).read_bytes()
        flip(run / name)
        code, said = verify(run, capsys)
        assert code == 1 and f"{run / name} is damaged" in said.replace("\n", ""), name
        (run / name).write_bytes(whole)
    assert verify(run, capsys)[0] == 0


def test_what_still_works_is_named(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "outputs.safetensors").unlink()
    assert "The model is intact: predict, evaluate and export work" in verify(run, capsys)[1]
    (run / "model" / "model.json").unlink()
    code, said = verify(run, capsys)
    assert code == 1 and "model.json is missing" in said and "train again with --overwrite" in said


def test_a_finished_run_needs_its_manifest(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "manifest.json").unlink()
    code, said = verify(run, capsys)
    assert code == 1 and f"{run / 'manifest.json'} is missing" in said.replace("\n", "")


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a run nor a model"):
        cli.run(["verify", str(tmp_path)])
    with pytest.raises(UserError, match="There is no folder"):
        cli.run(["verify", str(tmp_path / "nowhere")])
