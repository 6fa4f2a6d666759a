"""benchmarks/conventional.py on a few images: both loops do the same work."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import conventional

from proud.nets.models import DigitsBackbone

WORDS = shlex.split("--data digits-dg --epochs 1 --images 6 --batch-size 4 --workers 0 --device cpu --threads 1")


@pytest.mark.parametrize(("method", "views"), conventional.METHODS.items())
def test_both_loops_train_on_as_many_images(
    method: str, views: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [0]  # images that were learned from, by loop
    forward, ours = DigitsBackbone.forward, conventional.our_epoch_seconds

    def counting(self: DigitsBackbone, x: Tensor) -> Tensor:
        seen[-1] += len(x) * self.training
        return forward(self, x)

    def next_loop(*given: Any) -> list[float]:
        seen.append(0)
        return ours(*given)

    out = tmp_path / "out.json"
    monkeypatch.setattr(DigitsBackbone, "forward", counting)
    monkeypatch.setattr(conventional, "our_epoch_seconds", next_loop)
    conventional.main([*WORDS, "--methods", method, "--out", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert row["steps"] == 3 and row["images_per_step"] == 4 * views  # 12 unlabeled images
    epochs = conventional.WARM_UP_EPOCHS + 1, 2
    assert [count // epoch for count, epoch in zip(seen, epochs, strict=True)] == [12 * views, 12 * views]
    assert len(row["conventional"]["epochs_s"]) == len(row["ours"]["epochs_s"]) == 1
    assert row["ratio"] == row["conventional"]["epoch_s"] / row["ours"]["epoch_s"]
