"""Measuring a network: logits of stored images, accuracies on validation and test, pseudo-label accuracy by audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from proud import ops
from proud.data.types import EvaluationData, LabeledDomain
from proud.nets.models import ModelSpec, Net
from proud.ops import PseudoLabels


@torch.no_grad()
def forward_all(
    net: Net, images: Tensor, spec: ModelSpec, device: torch.device, precision: str, parts: int = 0
) -> tuple[Tensor, Tensor]:
    """Features and logits (float32, on the device) of stored uint8 images, in evaluation view and mode.

    In as many `parts` of equal size as told, or in chunks that fit."""
    chunk = 1024 if spec.size <= 64 else 128
    was_training = net.training
    net.eval()
    found = []
    with full_precision() if (precision, device.type) == ("fp32", "cuda") else nullcontext():
        for part in images.tensor_split(parts) if parts else images.split(chunk):
            x = ops.evaluation_view(part.to(device), spec.size, spec.mean, spec.std)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                features, logits = net(x)
            found.append((features.float(), logits.float()))
    net.train(was_training)
    return torch.cat([f for f, _ in found]), torch.cat([l for _, l in found])


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 on CUDA, whatever a training set or torch's defaults are: a saved model answers everywhere alike."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(1) == labels).float().mean().item()


class Evaluator:
    """The only holder of validation, test and audit labels during training; methods never see it."""

    def __init__(self, data: EvaluationData, spec: ModelSpec, device: torch.device, precision: str) -> None:
        self.data, self.spec, self.device, self.precision = data, spec, device, precision
        self._sets: dict[str, tuple[Tensor, Tensor]] = {}
        for name, domain in (("val", data.validation), ("test", data.test)):
            if domain is not None and len(domain.labels):
                keep = device if self._fits(domain) else torch.device("cpu")
                self._sets[name] = (domain.images.to(keep), domain.labels.to(device))
        self._audits = {name: audit.labels.to(device) for name, audit in data.audits.items()}

    def _fits(self, domain: LabeledDomain) -> bool:
        if self.device.type == "cpu":
            return True
        return domain.images.numel() < 0.25 * torch.cuda.mem_get_info(self.device)[0]

    def logits(self, net: Net, precision: str = "") -> dict[str, tuple[Tensor, Tensor]]:
        """`val` and `test` -> (logits, labels), as far as there are such sets; in another precision if told."""
        return {
            name: (forward_all(net, images, self.spec, self.device, precision or self.precision)[1], labels)
            for name, (images, labels) in self._sets.items()
        }

    def scores(self, net: Net) -> dict[str, float]:
        return {f"{name}_accuracy": accuracy(logits, labels) for name, (logits, labels) in self.logits(net).items()}

    def audit(self, name: str, found: PseudoLabels, stated: Tensor | None = None) -> dict[str, Any]:
        """Accuracy of a domain's pseudo-labels on the images whose true label happens to be known.

        Labels that the user stated ([N], -1 elsewhere) are no pseudo-labels and do not count. `audited` says how many
        images do, if not all.
        """
        truth = self._audits.get(name)
        if truth is None or len(truth) != len(found.labels):
            return {}
        known = truth >= 0
        if stated is not None:
            known &= stated.to(known.device) < 0
        if not bool(known.any()):
            return {}
        part = {} if bool(known.all()) else {"audited": int(known.sum())}
        return {"accuracy": (found.labels == truth)[known].float().mean().item()} | part


def audited_part(site: dict[str, Any], images: int) -> str:
    """How many of a site's images its pseudo-labels' accuracy is about, if not all, for behind the number."""
    return f" of {site['audited']} of {images} images" if "audited" in site else ""
