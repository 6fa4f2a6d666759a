"""What a method gets besides its settings: images on the device, a way to build networks, and the input format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from proud.config import NOTHING
from proud.data.types import UNKNOWN, TrainingData
from proud.distributed.group import ALONE, Group
from proud.methods.base import Sizes, Stage, any_length
from proud.nets.models import ModelSpec, Net, build_net


class ImagePool:
    """uint8 images of one or more domains under consecutive row numbers, on the device or in host memory."""

    def __init__(self, images: list[Tensor], device: torch.device, resident: bool) -> None:
        self.device = device
        self.resident = resident
        self.closed_in = ""
        self.sizes = [len(domain) for domain in images]
        self.starts = [sum(self.sizes[:i]) for i in range(len(images))]
        if resident and images:
            self._images = [
                torch.cat([domain.to(device) for domain in images]) if len(images) > 1 else images[0].to(device)
            ]
            any_length(self._images[0])
        else:
            self._images = list(images)

    def __len__(self) -> int:
        return sum(self.sizes)

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """Closed while a stage runs whose pools name labeled images alone."""
        self.closed_in = "" if set(stage.pools) != {"labeled"} else stage.name
        try:
            yield
        finally:
            self.closed_in = ""

    def rows_of(self, t: int) -> slice:
        """The rows of domain t."""
        return slice(self.starts[t], self.starts[t] + self.sizes[t])

    def take(self, rows: Tensor) -> Tensor:
        """The images of these rows, on the device."""
        if self.closed_in:
            raise RuntimeError(
                f"the stage {self.closed_in!r} reads unlabeled images, but its pools name labeled ones alone: a bench "
                "would share its training with combinations that are tested on these images"
            )
        if self.resident:
            return self._images[0][rows]
        wanted = rows.cpu()
        out = torch.empty((len(wanted), *self._images[0].shape[1:]), dtype=torch.uint8)
        for start, domain in zip(self.starts, self._images, strict=True):
            inside = ((wanted >= start) & (wanted < start + len(domain))).nonzero().squeeze(1)
            out[inside] = domain[wanted[inside] - start]
        return out.to(self.device, non_blocking=True)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@dataclass(frozen=True)
class Context:
    classes: int
    labeled: ImagePool
    labels: Tensor
    unlabeled: ImagePool
    unlabeled_names: tuple[str, ...]
    spec: ModelSpec
    device: torch.device
    precision: Literal["fp32", "bf16"]
    weights: str
    seed: int
    group: Group = ALONE
    known: Tensor | None = None  # [unlabeled rows]: labels that the user added, -1 elsewhere; None without any
    compile: Callable[[Callable[..., Any]], Callable[..., Any]] = uncompiled
    """for functions of pure tensor work outside `losses`"""
    start: dict[str, Tensor] | None = None
    """weights of the model that training starts from, in place of `weights`"""

    @property
    def sizes(self) -> Sizes:
        return Sizes(len(self.labeled), tuple(self.unlabeled.sizes))

    @property
    def size(self) -> int:
        return self.spec.size

    @property
    def mean(self) -> tuple[float, float, float]:
        return self.spec.mean

    @property
    def std(self) -> tuple[float, float, float]:
        return self.spec.std

    @property
    def chunk_size(self) -> int:
        """Images per chunk of a full pass: bounded memory, and enough work for the device."""
        if self.size <= 64:
            return 1600 if self.device.type == "cuda" else 256
        return 256 if self.device.type == "cuda" else 32

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False
        )

    def build_net(self, purpose: str) -> Net:
        net = build_net(self.spec, self.weights if self.start is None else NOTHING, self.seed, purpose)
        if self.start is not None:
            net.load_state_dict(self.start)
        return net.to(self.device).to(memory_format=torch.channels_last)


def make_context(
    data: TrainingData,
    spec: ModelSpec,
    device: torch.device,
    *,
    weights: str,
    seed: int,
    precision: Literal["fp32", "bf16"],
    group: Group = ALONE,
    compile: Callable[[Callable[..., Any]], Callable[..., Any]] = uncompiled,
    start: dict[str, Tensor] | None = None,
) -> Context:
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "bf16"
    unlabeled = [domain.images for domain in data.unlabeled]
    total = data.labeled.images.numel() + sum(images.numel() for images in unlabeled)
    resident = device.type == "cpu" or total < 0.5 * torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu":
        resident = len(unlabeled) == 1 or total < 2**28  # several memory-mapped domains are not copied together
    return Context(
        classes=len(data.classes),
        labeled=ImagePool([data.labeled.images], device, resident),
        labels=any_length(data.labeled.labels.to(device)),
        unlabeled=ImagePool(unlabeled, device, resident),
        unlabeled_names=tuple(domain.name for domain in data.unlabeled),
        spec=spec,
        device=device,
        precision=precision,
        weights=weights,
        seed=seed,
        group=group,
        known=_known_labels(data, device),
        compile=compile,
        start=start,
    )


def _known_labels(data: TrainingData, device: torch.device) -> Tensor | None:
    if all(domain.known is None for domain in data.unlabeled):
        return None
    parts = [torch.full((len(domain),), UNKNOWN) if domain.known is None else domain.known for domain in data.unlabeled]
    return torch.cat(parts).to(device)
