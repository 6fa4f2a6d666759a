"""Features and logits of stored images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from proud import ops
from proud.nets.forward import forward_all, full_precision, piece_size, recalls
from proud.nets.models import build_net, model_spec

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


@pytest.mark.parametrize("name", ["digits", "test_resnet"])
def test_answers_are_those_of_one_pass_in_the_default_layout(name: str) -> None:
    spec = model_spec(name, 3, 32)
    net, device = build_net(spec).eval(), torch.device("cpu")
    count = piece_size(spec.size, device) + 3
    images = torch.randint(0, 256, (count, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = net(ops.evaluation_view(images, spec.size, spec.mean, spec.std))
    torch.testing.assert_close(forward_all(net, images, spec, device, "fp32"), wanted, rtol=1e-5, atol=1e-5)
