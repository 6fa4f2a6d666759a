"""Features and logits of stored images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy

import torch
from torch import Tensor

from proud import ops
from proud.nets.batch_norm import evaluating
from proud.nets.models import ModelSpec, Net
from proud.nets.resnet import ResNet

WORTH_FOLDING = 32  # images
Outputs = tuple[Tensor, Tensor]  # features and logits


def forward_all(
    net: Net,
    images: Tensor,
    spec: ModelSpec,
    device: torch.device,
    precision: str,
    batch_statistics: int = 0,
) -> tuple[Tensor, Tensor]:
    """Features and logits (float32, on the device) of stored uint8 images, in evaluation view and mode.

    With `batch_statistics`, batch norm uses the statistics of equal parts of about so many images."""
    pieces = images.split(piece_size(spec.size, device))
    if batch_statistics:
        pieces = images.tensor_split(-(-len(images) // batch_statistics))  # no small last one

    def forward(part: Tensor) -> Outputs:
        x = ops.evaluation_view(part.to(device), spec.size, spec.mean, spec.std)
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            features, logits = net(x)
        return features.float(), logits.float()

    if device.type == "cpu" and len(images) >= WORTH_FOLDING and not batch_statistics:
        net = folded(net)
    exact = full_precision() if (precision, device.type) == ("fp32", "cuda") else nullcontext()
    with exact, evaluating(net, batch_statistics > 0):
        found = list(forward_in_threads(forward, pieces) if device.type == "cpu" else map(forward, pieces))
    return torch.cat([f for f, _ in found]), torch.cat([l for _, l in found])


def folded(net: Net) -> Net:
    """Faster in evaluation, where the network allows it."""
    if not isinstance(net.backbone, ResNet):
        return net
    faster = copy(net)
    faster._modules = net._modules | {"backbone": net.backbone.folded()}
    return faster


def piece_size(size: int, device: torch.device) -> int:
    """Images per forward pass: enough work for a GPU; on a CPU, activations that stay in a core's cache."""
    if device.type == "cuda":
        return 1024 if size <= 64 else 128
    return 64 if size <= 64 else 8


def forward_in_threads(work: Callable[[Tensor], Outputs], pieces: Sequence[Tensor]) -> Iterator[Outputs]:
    """Each piece by one of torch's CPU threads: all threads on one piece would wait for each other at every layer."""
    threads = min(torch.get_num_threads(), len(pieces))
    if threads == 1:
        yield from map(work, pieces)
        return
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, pieces)
    finally:
        torch.set_num_threads(before)  # the number for new threads is the process's


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 on CUDA, whatever training or torch's defaults set: a saved model gives the same answers everywhere."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(1) == labels).float().mean().item()


def recalls(predicted: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """The share of each class's images that are predicted as that class; None for a class without images."""
    counts = labels.bincount(minlength=classes)
    right = labels[predicted == labels].bincount(minlength=classes)
    return [round(a / b, 4) if b else None for a, b in torch.stack([right, counts], 1).tolist()]
