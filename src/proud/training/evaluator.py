"""Accuracy on validation and test images, and of pseudo-labels where true labels are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from proud.data.types import EvaluationData, LabeledDomain
from proud.nets.forward import accuracy, forward_all, recalls
from proud.nets.models import ModelSpec, Net
from proud.ops import PseudoLabels


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
        """`val` and `test` -> (logits, labels) of those sets that exist; optionally in another precision."""
        return {
            name: (forward_all(net, images, self.spec, self.device, precision or self.precision)[1], labels)
            for name, (images, labels) in self._sets.items()
        }

    def scores(self, net: Net) -> dict[str, Any]:
        """Accuracy, and the recall of each class."""
        found: dict[str, Any] = {}
        for name, (logits, labels) in self.logits(net).items():
            found[f"{name}_accuracy"] = accuracy(logits, labels)
            found[f"{name}_recall"] = recalls(logits.argmax(1), labels, self.spec.classes)
        return found

    def audit(self, name: str, found: PseudoLabels, added: Tensor | None = None) -> dict[str, Any]:
        """Accuracy of a domain's pseudo-labels, and recall per class, on images whose true label happens to be known.

        Labels that the user added ([N], -1 elsewhere) do not count. `audited`: how many images do, if not all.
        """
        truth = self._audits.get(name)
        if truth is None or len(truth) != len(found.labels):
            return {}
        known = truth >= 0
        if added is not None:
            known &= added.to(known.device) < 0
        if not bool(known.any()):
            return {}
        part = {} if bool(known.all()) else {"audited": int(known.sum())}
        accurate = {"accuracy": (found.labels == truth)[known].float().mean().item()}
        return accurate | part | {"recall": recalls(found.labels[known], truth[known], self.spec.classes)}
