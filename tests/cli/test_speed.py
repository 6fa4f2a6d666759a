"""`proud speed` on a tiny made-up set: what it measures, shows and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from proud import speed
from proud.cli.main import run
from proud.errors import UserError

TINY = {"labeled": 40, "unlabeled": (24, 30), "test": 10, "classes": 3, "model": "digits", "size": 16}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(speed.SHAPES, "embedded", TINY)
    monkeypatch.setattr(speed, "matmul_peak", lambda device, precision: 1e12)


@pytest.mark.parametrize("method", ["proud", "proud-plus", "eid"])
def test_measures_shows_and_keeps(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    command = ["speed", "--data", "embedded", "--method", method, "--seconds", "0", "--out", str(out)]
    assert run([*command, "--device", "cpu", *(["--full"] if method == "proud" else [])]) == 0
    found, shown = json.loads(out.read_text()), capsys.readouterr().out
    assert found["method"] == method and found["plain"]["step_ms"] > 0 and "step, draws to optimizer" in shown
    assert {"command", "commit", "versions", "device"} <= set(found)
    if method == "proud":
        assert [row["domains"] for row in found["scaling"]] == [2, 4, 8] and "8 unlabeled domains" in shown
        assert found["images_per_step"] == 4 * found["batch_size"]  # mixed pairs and copies; originals of both sides
        assert 0 < found["plain"]["dapp_ms"] < found["plain"]["epoch_begin_ms"]


def test_without_out_the_numbers_are_kept_among_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["speed", "--data", "embedded", "--method", "erm", "--device", "cpu"]) == 0
    assert json.loads((tmp_path / "runs" / "speed-embedded-erm.json").read_text())["method"] == "erm"


def test_a_place_that_cannot_be_written_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "measure", lambda *_: pytest.fail("measured first"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write"):
        run(["speed", "--device", "cpu", "--out", str(tmp_path / "file" / "speed.json")])


def test_a_rounding_grows_and_nothing_stays_nothing() -> None:
    found = speed.equality("digits-dg", "proud", torch.device("cpu"), steps=6, pretrain_epochs=1)
    assert found["plain_vs_plain"] == 0
    until = found["nudged_vs_plain_until"]
    assert 0 <= until[1] < 1e-4 and until[1] <= until[5] <= found["nudged_vs_plain"] and found["nudged_vs_plain"] > 0


def test_counts_what_is_computed_and_not_views() -> None:
    with speed.Operations() as counter:
        x = torch.ones(4, 4)  # made and filled: two
        y = x.view(16)[2:].t()
        y = y + 1
        y.mul_(2)
    assert 3 <= counter.count <= 4


def test_parts_of_a_step_add_up() -> None:
    method = speed.build(TINY, "embedded", "proud", speed.made_up_task(TINY), torch.device("cpu"), "fp32")
    parts = speed.operations_per_step(method)
    assert parts["all"] == sum(count for name, count in parts.items() if name != "all")
    assert all(count > 0 for count in parts.values())
