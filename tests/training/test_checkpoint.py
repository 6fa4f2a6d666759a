"""Checkpoints: the newest intact one is loaded, damage is noticed, and so are files of other programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from proud.errors import UserError
from proud.files import replacing, write_json
from proud.held import HeldFolder
from proud.stored import EpochRecord
from proud.training.checkpoint import KEPT, Checkpoint, Position, load_checkpoint, save_checkpoint
from proud.training.records import OwnRecords, epochs_of


def save(folder: Path, number: int) -> None:
    state = {"x": torch.full((2,), float(number))}
    save_checkpoint(HeldFolder(folder), Checkpoint(state, Position(0, number, number), {"lr": 1}))


def load(folder: Path) -> Checkpoint | None:
    return load_checkpoint(HeldFolder(folder))


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for number in range(1, 5):
        save(tmp_path, number)
    assert len(list(tmp_path.glob("*.json"))) == KEPT
    found = load(tmp_path) or pytest.fail()
    assert found.state["x"].tolist() == [4, 4]
    assert found.position == Position(0, 4, 4)
    assert found.config == {"lr": 1}


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "torn json", "foreign"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(damage: str, tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    tensors, about = tmp_path / "checkpoint-000002.safetensors", tmp_path / "checkpoint-000002.json"
    content = tensors.read_bytes()
    if damage == "flip":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "truncate":
        tensors.write_bytes(content[: len(content) // 2])
    elif damage == "remove":
        tensors.unlink()
    elif damage == "torn json":
        about.write_bytes(about.read_bytes()[:20])
    else:
        about.write_text(json.dumps({"format": "of another program"}))
    with pytest.warns(UserWarning, match="checkpoint-000002.json is damaged"):
        found = load(tmp_path) or pytest.fail()
    assert found.position.records == 1
    assert found.state["x"].tolist() == [1, 1]


def test_no_intact_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "checkpoint-000001.safetensors").write_bytes(b"not ours")
    with pytest.warns(UserWarning, match="checksum"), pytest.raises(UserError, match="no intact checkpoint"):
        load(tmp_path)


def test_what_a_kill_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    for number in (1, 2):
        save(tmp_path, number)
    (tmp_path / "checkpoint-000000.safetensors").write_bytes(b"its description is gone already")
    (tmp_path / ".checkpoint-000003.safetensors.00000000.proud-part").write_bytes(b"half")
    assert load(tmp_path) is not None
    assert len(list(tmp_path.iterdir())) == 2 * KEPT


def test_a_damaged_checkpoint_is_not_one_of_the_two_kept(tmp_path: Path) -> None:
    for number in (1, 2):
        save(tmp_path, number)
    (tmp_path / "checkpoint-000002.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        load(tmp_path)
    save(tmp_path, 5)
    assert [path.stem for path in sorted(tmp_path.glob("*.json"))] == ["checkpoint-000001", "checkpoint-000005"]


def test_files_are_written_under_one_other_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's own temporary file would stay behind when the process is killed; the umask decides who may read."""
    seen: list[set[str]] = []
    real = os.replace

    def list_and_replace(*names: str, **handles: int) -> None:
        seen.append({path.name.rpartition(".")[2] for path in tmp_path.iterdir()})
        real(*names, **handles)

    monkeypatch.setattr(os, "replace", list_and_replace)
    save(tmp_path, 1)
    assert seen == [{"proud-part"}, {"safetensors", "proud-part"}]
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_without_a_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(KeyboardInterrupt), replacing(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_records_are_cut_to_those_of_the_checkpoint(tmp_path: Path) -> None:
    records = OwnRecords(HeldFolder(tmp_path), "records.jsonl", EpochRecord)
    epochs = [{"stage": "main", "epoch": number + 1, "losses": {"loss": 0.5}} for number in range(3)]
    records.append(*epochs)
    with records.path.open("ab") as file:
        file.write(b'{"stage": "main", "torn')
    with pytest.raises(UserError, match="was changed while this run was writing it"):
        records.append(epochs[2])
    records.cut(2)
    assert records.read() == epochs[:2]
    records.append(epochs[2])
    assert records.read() == epochs
    with pytest.raises(UserError, match="has 3 of 5 records"):
        records.cut(5)


@pytest.mark.parametrize(
    "epochs",
    [
        [("pretrain", 2)],
        [("pretrain", 1), ("pretrain", 1)],
        [("pretrain", 1), ("main", 2)],
        [("pretrain", 1), ("main", 1), ("pretrain", 2)],
    ],
)
def test_epochs_out_of_order_are_refused(epochs: list[tuple[str, int]], tmp_path: Path) -> None:
    lines = [json.dumps({"stage": stage, "epoch": epoch, "losses": {}}) + "\n" for stage, epoch in epochs]
    (tmp_path / "records.jsonl").write_text("".join(lines))
    with pytest.raises(UserError, match="is out of order"):
        epochs_of(tmp_path).read()
