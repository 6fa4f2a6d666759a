"""Features and logits of stored images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from proud.nets.forward import full_precision, recalls

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn


@pytest.fixture
def tf32() -> Iterator[None]:
    """As a training in bf16 leaves it."""
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    yield
    matmul.allow_tf32, cudnn.allow_tf32 = before


@pytest.mark.usefixtures("tf32")
def test_full_precision_ends_with_its_block() -> None:
    with pytest.raises(RuntimeError, match="no memory"), full_precision():
        assert not matmul.allow_tf32 and not cudnn.allow_tf32
        raise RuntimeError("no memory")
    assert matmul.allow_tf32 and cudnn.allow_tf32


def test_recall_of_each_class() -> None:
    labels, predicted = torch.tensor([0, 0, 0, 0, 1, 1, 3]), torch.tensor([0, 0, 0, 1, 2, 2, 3])
    assert recalls(predicted, labels, 5) == [0.75, 0.0, None, 1.0, None]
