"""MCD (Saito et al., CVPR 2018, "Maximum Classifier Discrepancy for Unsupervised Domain Adaptation")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proud.lazy import torch
from proud.methods.base import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from proud.methods.base import Method


class Adapter(Parts):
    """One domain's adaptation model. Its first classifier is the head of `net` and makes the predictions."""

    def __init__(self, method: Method, purpose: str) -> None:
        self.net = method.context.build_net(purpose)
        self.second = method.context.build_net(f"{purpose}-second").head
        self.features_optimizer = method.sgd(self.net.backbone)
        self.heads_optimizer = method.sgd(self.net.head, self.second)
        self.autocast = method.context.autocast

    def step(
        self, x: Tensor, source_loss: Callable[[Tensor], Tensor], x_target: Tensor, feature_steps: int
    ) -> dict[str, Tensor]:
        """Steps A, B and C of MCD; `source_loss` is the loss of x's logits."""
        # A: features and both classifiers learn the source
        loss = self.both(source_loss, self.features(x))
        update(loss, self.features_optimizer, self.heads_optimizer)
        # B: the classifiers disagree on the target as much as the source allows
        with torch.no_grad():
            features, features_target = self.features(x), self.features(x_target)
        update(self.both(source_loss, features) - self.disagreement(features_target), self.heads_optimizer)
        # C: the features minimise the discrepancy
        difference = torch.zeros_like(loss)
        for _ in range(feature_steps):
            difference = self.disagreement(self.features(x_target))
            update(difference, self.features_optimizer)
        return {"loss": loss.detach(), "discrepancy": difference.detach()}

    def features(self, x: Tensor) -> Tensor:
        with self.autocast():
            return self.net.backbone(x)

    def logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        with self.autocast():
            return self.net.head(features).float(), self.second(features).float()

    def both(self, loss: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
        first, second = self.logits(features)
        return loss(first) + loss(second)

    def disagreement(self, features: Tensor) -> Tensor:
        first, second = self.logits(features)
        return discrepancy(first.softmax(1), second.softmax(1))


def discrepancy(first: Tensor, second: Tensor) -> Tensor:
    """The mean absolute difference of two classifiers' probabilities. [N,K] twice -> scalar."""
    return (first - second).abs().mean()


def update(loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """One step of these optimizers; no other parameter gets a gradient."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward(inputs=[p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]])
    for optimizer in optimizers:
        optimizer.step()
