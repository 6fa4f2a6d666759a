"""benchmarks/prediction.py on a few images and a small network."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from proud.cli.main import run

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import prediction


def test_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def here(command: list[str]) -> dict[str, float]:
        """Without a process of its own."""
        assert run(command[3:]) == 0
        done.append(command[3])
        return {"wall_s": float(len(done)), "cpu_s": 1.0}

    monkeypatch.setattr(prediction, "seconds", here)
    out = tmp_path / "out.json"
    words = ["--networks", "test_resnet", "--images", "5", "--repeats", "1", "--threads", "1", "--out", str(out)]
    prediction.main(words)
    found = json.loads(out.read_text())
    assert done == ["--help", "--help", "predict", "predict"]
    assert [row["warm"]["wall_s"] for row in found["start_up"]] == [2.0, 4.0]  # the first of each warms up
    (row,) = found["prediction"]
    assert row["images"] == 5 and row["difference"] < 1e-5
    (once,) = row["runs"]
    assert row["ratio_wall"] == once["timm"]["wall_s"] / once["ours"]["wall_s"]
