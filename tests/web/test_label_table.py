"""Labels are on disk once they are acknowledged, and nothing of the user's is lost."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from proud.data.csv_table import read_labels
from proud.errors import UserError
from proud.web.labels import LabelTable, Target, only_writer


def target(number: int, content: str = "") -> Target:
    return Target("north", content or f"{number:064x}", f"north/{number}.png", "cat", "0.5000")


def stored(path: Path) -> dict[str, str]:
    return {row.path: row.label for row in read_labels(path)}


def test_labels_are_in_the_file_at_once(tmp_path: Path) -> None:
    table = LabelTable(tmp_path / "labels.csv")
    assert not table.path.exists(), "nothing is written before there is a label"
    assert len(table.set([(target(0), "dog"), (target(1), "cat")])) == 2
    assert stored(table.path) == {"north/0.png": "dog", "north/1.png": "cat"}
    table.set([(target(0), "cat")])
    assert stored(table.path) == {"north/0.png": "cat", "north/1.png": "cat"}
    assert LabelTable(table.path).label(target(0)) == "cat"


def test_undo_takes_back_one_change_at_a_time(tmp_path: Path) -> None:
    table = LabelTable(tmp_path / "labels.csv")
    table.set([(target(0), "dog"), (target(1), "dog")])
    table.set([(target(1), "cat")])
    assert [change.after for change in table.undo()] == ["dog"]
    assert stored(table.path) == {"north/0.png": "dog", "north/1.png": "dog"}
    table.undo()
    assert table.label(target(0)) == "" == table.label(target(1))
    assert table.undo() == []


def test_copies_of_an_image_share_their_label(tmp_path: Path) -> None:
    table = LabelTable(tmp_path / "labels.csv")
    copy = target(7)._replace(path="north/copy.png")
    assert len(table.set([(target(7), "dog"), (copy, "dog")])) == 1
    assert table.label(copy) == "dog"
    assert len(read_labels(table.path)) == 1


def test_rows_and_columns_of_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(
        "path,domain,label,who\nnorth/0.png,north,,ann\nelsewhere/9.png,west,owl,bob\n'=1+1,north,fox,eve\n"
    )
    table = LabelTable(path)
    table.set([(target(0), "dog"), (target(1), "cat")])
    with path.open(newline="") as file:
        rows = {row["path"]: (row["label"], row["who"]) for row in csv.DictReader(file)}
    expected = {"north/0.png": ("dog", "ann"), "elsewhere/9.png": ("owl", "bob"), "'=1+1": ("fox", "eve")}
    assert rows == expected | {"north/1.png": ("cat", "")}


def test_an_edit_by_another_program_is_not_overwritten(tmp_path: Path) -> None:
    table = LabelTable(tmp_path / "labels.csv")
    table.set([(target(0), "dog")])
    text = table.path.read_text().replace("dog", "wolf")
    table.path.write_text(text + "north/5.png,north,owl,,,\n")
    table.set([(target(1), "cat")])
    assert stored(table.path) == {"north/0.png": "wolf", "north/5.png": "owl", "north/1.png": "cat"}
    assert [change.target for change in table.undo()] == [target(1)]
    assert table.undo() == [], "changes before the edit are not undone"


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LabelTable(tmp_path / "labels.csv")
    table.set([(target(0), "dog")])
    before = table.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left"):
        patch.setattr(os, "fsync", full)
        table.set([(target(0), "cat"), (target(1), "cat")])
    assert table.path.read_bytes() == before
    assert (table.label(target(0)), table.label(target(1))) == ("dog", "")
    table.set([(target(1), "owl")])
    assert stored(table.path) == {"north/0.png": "dog", "north/1.png": "owl"}


def test_every_acknowledged_change_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    LabelTable(tmp_path / "labels.csv").set([(target(0), "dog")])
    assert len(synced) == 2, "the file and its folder"


def test_only_one_server_writes_a_table(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with only_writer(path, tmp_path / "locks"):
        again = only_writer(path, tmp_path / "locks")
        with pytest.raises(UserError, match=r"Another `proud review` is writing .*labels\.csv"), again:
            pass
        with only_writer(tmp_path / "other.csv", tmp_path / "locks"):
            pass
    with only_writer(path, tmp_path / "locks"):
        pass


def test_a_table_without_rows_is_a_start(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("path,domain,label\n")
    table = LabelTable(path)
    table.set([(target(0), "dog")])
    assert stored(path) == {"north/0.png": "dog"}
    path.write_text("path,label\n")
    with pytest.raises(UserError, match="lacks the column domain"):
        LabelTable(path)
