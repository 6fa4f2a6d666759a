"""Measuring a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from proud.training.evaluator import full_precision

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn


@pytest.fixture
def tf32() -> Iterator[None]:
    """As a training in bf16 leaves it."""
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    yield
    matmul.allow_tf32, cudnn.allow_tf32 = before


@pytest.mark.usefixtures("tf32")
def test_full_precision_is_for_the_time_being() -> None:
    with pytest.raises(RuntimeError, match="out of luck"), full_precision():
        assert not matmul.allow_tf32 and not cudnn.allow_tf32
        raise RuntimeError("out of luck")
    assert matmul.allow_tf32 and cudnn.allow_tf32
