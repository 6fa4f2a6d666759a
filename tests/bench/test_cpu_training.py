"""benchmarks/cpu_training.py: its variants compute the same step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import speed
from cpu_training import CPU, SHAPES, in_default_layout, stepper

from proud.data.synthetic import synthetic_task


def test_layouts_differ_and_losses_do_not() -> None:
    data, shape, _ = SHAPES["digits net, 32 px, batch 128"]
    shape = shape | {"labeled": 16, "unlabeled": (8, 8), "test": 4}
    ours, default = (
        speed.build(shape, data, "proud-plus", synthetic_task(shape), CPU, "fp32", batch_size=8) for _ in range(2)
    )
    in_default_layout(default)
    for method, last in ((ours, True), (default, False)):
        weight = method.net.backbone.convolutions[1].weight  # type: ignore[union-attr, index]
        assert weight.is_contiguous(memory_format=torch.channels_last) is last
    found = {name: values.tolist() for name, values in stepper(ours, 2)().items()}
    assert found == {name: pytest.approx(values.tolist(), rel=1e-4) for name, values in stepper(default, 2)().items()}
