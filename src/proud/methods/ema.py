"""A moving average of a network's weights, as a component of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proud.config import Decay
from proud.lazy import torch
from proud.methods.base import MethodConfig, Parts, buffers

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import Stage
    from proud.methods.context import Context
    from proud.nets.models import Net


@dataclass(frozen=True)
class EMAConfig(MethodConfig):
    """Settings that the semi-supervised baselines share."""

    ema_decay: Decay = 0.999
    """decay of the moving average of the weights, which is evaluated and saved"""
    noisemix: bool = False
    """add NoiseMix copies, as ProUD does (not in the method's paper)"""


class WeightAverage(Parts):
    """θ' ← α θ' + (1 - α) θ with α = min(1 - 1/(step + 1), limit): at first the plain mean over all steps.

    Before the main stage the average is the network itself. Batch statistics of the average are `copied` from the
    network, `averaged` like the weights, or, in the main stage, its `own` from its own forward passes.
    """

    def __init__(
        self,
        context: Context,
        limit: Callable[[Stage, int], float],
        statistics: Literal["copied", "averaged", "own"] = "copied",
    ) -> None:
        self.net: Net = context.build_net("net").requires_grad_(False)
        self.limit, self.statistics = limit, statistics
        self.steps = torch.zeros((), dtype=torch.int64, device=context.device)  # done in this stage
        self.most_decay = torch.zeros((), device=context.device)
        self.clock = buffers(steps=self.steps, most_decay=self.most_decay)

    def begin_epoch(self, stage: Stage, epoch: int) -> None:
        self.net.train()
        self.steps.fill_(epoch * stage.steps)
        self.most_decay.fill_(self.limit(stage, epoch) if stage.name == "main" else 0)

    def ramp(self, steps: Tensor) -> Tensor:
        """Linear from 0 to 1 over the first steps of the stage."""
        return (self.steps / steps).clamp(max=1)

    def update(self, net: Net, stage: Stage) -> None:
        with torch.no_grad():
            self._move(tuple(self.net.parameters()), tuple(net.parameters()))
            self._update_statistics(net, stage)
            self.steps.add_(1)

    def _move(self, average: tuple[Tensor, ...], current: tuple[Tensor, ...]) -> None:
        decay = torch.minimum(1 - 1 / (self.steps + 1), self.most_decay)
        torch._foreach_mul_(average, decay)
        torch._foreach_add_(average, torch._foreach_mul(current, 1 - decay))

    def _update_statistics(self, net: Net, stage: Stage) -> None:
        pairs = list(zip(self.net.buffers(), net.buffers(), strict=True))
        if self.statistics == "averaged":
            floating = [pair for pair in pairs if pair[0].is_floating_point()]
            if floating:
                self._move(*zip(*floating, strict=True))
        elif self.statistics == "copied" or stage.name == "pretrain":
            for mine, other in pairs:
                mine.copy_(other)
