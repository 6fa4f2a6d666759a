"""Features and logits of stored images."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from proud import ops
from proud.machine import using_threads
from proud.nets.forward import forward_all, forward_in_threads, full_precision, piece_size, recalls
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


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["digits", "test_resnet"])
def test_answers_are_those_of_one_pass_in_the_default_layout(name: str, threads: int) -> None:
    spec = model_spec(name, 3, 32)
    net, device = build_net(spec), torch.device("cpu")
    count = 2 * piece_size(spec.size, device) + 3
    images = torch.randint(0, 256, (count, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = net.eval()(ops.evaluation_view(images, spec.size, spec.mean, spec.std))
    net.train()
    with using_threads(threads):
        found = forward_all(net, images, spec, device, "fp32")
        assert torch.get_num_threads() == threads
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert net.training and not any(part.requires_grad for part in found)


def test_each_thread_computes_its_own_pieces() -> None:
    """Two pieces at the same time, each with one thread; afterwards new threads have as many as before."""
    both, numbers = threading.Barrier(2, timeout=60), []

    def work(piece: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both.wait()
        numbers.append(torch.get_num_threads())
        return piece, piece + 1

    with using_threads(2):
        found = list(forward_in_threads(work, torch.arange(4).split(1)))
        later = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
        later.start()
        later.join()
    assert [value.item() for value, _ in found] == [0, 1, 2, 3]
    assert numbers == [1, 1, 1, 1, 2]
