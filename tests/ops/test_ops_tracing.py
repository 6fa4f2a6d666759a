"""The hot functions must be one graph: no host sync, no branch on a value, no shape that depends on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from proud import ops
from proud.ops.noisemix import _toeplitz_convolution

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
N, D, K = 6, 4, 3


def dapp(features: Tensor, probs: Tensor) -> tuple[Tensor, ...]:
    found = ops.dapp(lambda: [(features, probs)], 0.1)
    return found.labels, found.uncertainty, found.prototypes, found.present


def mixed_batch(labels: Tensor, eps: Tensor, uniform: Tensor, images: Tensor, domain: Tensor) -> Tensor:
    classes = torch.arange(K, device=domain.device)
    index = ops.ClassIndex(order=classes, start=classes, count=torch.ones_like(classes))
    rows = ops.sample_match(labels, index, uniform)
    return ops.ud_mix(domain[rows], images, ops.mixing_ratio(eps, uniform, 0.5, 0.35))


def losses(features: Tensor, labels: Tensor, prototypes: Tensor, ratio: Tensor) -> Tensor:
    mixed = ops.mixup(features, labels, ratio)
    logits = -ops.cosine_distance(mixed, prototypes)
    return (
        ops.prototype_merging_loss(features, labels, prototypes, weights=ratio)
        + ops.mixup_cross_entropy(logits, labels, labels.flip(0), ratio)
        + ops.soft_cross_entropy(logits, logits.softmax(-1))
    )


def merged(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    part = ops.hard_prototypes(features, labels, K)
    merged = ops.merge_prototypes([part, part])
    return merged, ops.nearest_prototype(features, merged, part[1])


def noise_mixed(sample: Tensor, layer: Tensor, weights: Tensor, noise: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    draw = ops.noise_mix_draw(sample, layer, weights, noise)
    kernel = ops.dilated_kernel(draw.weights[0], draw.kernel_size[0], draw.dilation[0])
    return ops.noise_mix(x, draw.slice(slice(0, N)), MEAN, STD), _toeplitz_convolution(x, kernel)


def augmented(images: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    draw = ops.augment_draw(uniform, 2)
    return ops.augment(images, draw, 6, MEAN, STD), ops.evaluation_view(images, 6, MEAN, STD)


def warped(x: Tensor, uniform: Tensor) -> Tensor:
    return ops.random_warp(x, uniform, 0.5)


def consensus(distances: Tensor, opinion: Tensor, present: Tensor) -> tuple[Tensor, ...]:
    return ops.consensus(distances, opinion, 0.1, present > 0.5, 0.5)


def cases() -> list[tuple[Callable[..., Any], tuple[Tensor, ...]]]:
    g = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=g)

    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    return [
        (dapp, (rand(2, N, D) - 0.5, rand(2, N, K))),
        (mixed_batch, (labels, rand(N), rand(N), rand(N, 3, 2, 2), rand(K, 3, 2, 2))),
        (losses, (rand(N, D), labels, rand(K, D), rand(N))),
        (merged, (rand(N, D), labels)),
        (noise_mixed, (rand(2, N), rand(2, 3), rand(2, 3, 3, 15, 15), rand(2, N, 3, 8, 8), rand(N, 3, 8, 8))),
        (warped, (rand(N, 3, 8, 8), rand(N, 6))),
        (consensus, (rand(2, N, K), rand(N, K), torch.ones(K))),
        (augmented, ((255 * rand(N, 3, 8, 8)).to(torch.uint8), rand(N, 9))),
    ]


each_case = pytest.mark.parametrize(("function", "inputs"), cases(), ids=lambda value: getattr(value, "__name__", ""))


@each_case
def test_traces_into_one_graph(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    traced = torch.compile(function, fullgraph=True, backend="eager", dynamic=False)
    torch.testing.assert_close(traced(*inputs), function(*inputs))


@pytest.mark.skipif(torch.__version__ < (2, 10), reason="earlier versions look for a real GPU")
@each_case
def test_stays_on_the_gpu(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that exists by name only: any tensor left on the host, or any look at a value, raises."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # nothing made here may enter a cache
    with FakeTensorMode():
        outputs = function(*(torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in inputs))
    assert all(out.is_cuda for out in (outputs if isinstance(outputs, tuple) else [outputs]))
