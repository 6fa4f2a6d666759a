"""Co-teaching (Han et al., NeurIPS 2018) as EID uses it: which pseudo-labels to learn, and which to trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def information_maximization(logits: Tensor) -> Tensor:
    """InfoMax: mean entropy of the predictions minus the entropy of their mean. [N,K] -> scalar."""
    log_probs = logits.log_softmax(1)
    mean = log_probs.exp().mean(0)
    return (mean * mean.clamp_min(1e-12).log()).sum() - (log_probs.exp() * log_probs).sum(1).mean()


def remember_count(batch: int, forget_rate: float, epoch: int, epochs: int) -> int:
    """How many pseudo-labels of a batch are learnt: all at first, from two thirds of the stage on 1 - forget_rate."""
    ramp = max(1, round(2 / 3 * epochs) - 1)
    return int((1 - forget_rate * min(1.0, epoch / ramp)) * batch)


def smallest(losses: Tensor, count: Tensor) -> Tensor:
    """Marks the `count` smallest. [N] -> [N] bool."""
    return losses.argsort(stable=True).argsort() < count


def clean_first(first: Tensor, second: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """Which pseudo-labels to trust: of the images on which both agree, the share with the smallest losses.

    Logits [N,K] twice -> rows in order of trust [N], labels [N], how many rows to take [].
    """
    labels = first.argmax(1)
    agreed = labels == second.argmax(1)
    losses = sum(torch.nn.functional.cross_entropy(logits, labels, reduction="none") for logits in (first, second))
    order = torch.where(agreed, losses, torch.inf).argsort(stable=True)
    return order, labels, (share * agreed.sum()).long()
