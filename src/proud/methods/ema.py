"""What MeanTeacher, MixMatch and FixMatch share: unlabeled domains as one pool, and a moving average of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.lazy import torch
from proud.methods.base import Method, MethodConfig, Stage

if TYPE_CHECKING:
    from torch import Tensor, nn

    from proud.methods.context import Context
    from proud.nets.models import Net
    from proud.randomness import Draws, Randomness


@dataclass(frozen=True)
class EMAConfig(MethodConfig):
    ema_decay: float = 0.999
    """decay of the moving average of the weights, which is evaluated and saved"""
    noisemix: bool = False
    """add NoiseMix copies, as ProUD does (not in the method's paper)"""


class EMAMethod(Method):
    config: EMAConfig

    def __init__(self, config: EMAConfig, context: Context) -> None:
        super().__init__(config, context)
        self.average: Net = context.build_net("net").requires_grad_(False)
        self.steps = torch.zeros((), dtype=torch.int64, device=context.device)  # done in this stage
        self.most_decay = torch.zeros((), device=context.device)
        self.clock = torch.nn.Module()
        self.clock.register_buffer("steps", self.steps)
        self.clock.register_buffer("most_decay", self.most_decay)

    def stages(self) -> list[Stage]:
        labeled, unlabeled = len(self.context.labeled), len(self.context.unlabeled)
        return [
            Stage("pretrain", self.config.pretrain_epochs, self.steps_for(labeled), {"labeled": labeled}),
            Stage("main", self.config.epochs, self.steps_for(unlabeled), {"labeled": labeled, "unlabeled": unlabeled}),
        ]

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        super().begin_epoch(stage, epoch, random)
        self.average.train()
        self.steps.fill_(epoch * stage.steps)
        # without memory, the average is the network itself: so it is before the main stage
        self.most_decay.fill_(self.decay_limit(stage, epoch) if stage.name == "main" else 0)

    def decay_limit(self, stage: Stage, epoch: int) -> float:
        return self.config.ema_decay

    def ramp(self, steps: int) -> Tensor:
        """Linear from 0 to 1 over the first steps of the stage."""
        return (self.steps / max(1, steps)).clamp(max=1)

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        losses = super().step(stage, rows, draws)
        with torch.no_grad():
            self.update_average()
            self.update_statistics(stage)
            self.steps.add_(1)
        return losses

    def update_average(self) -> None:
        """θ' ← α θ' + (1 - α) θ."""
        self.move(tuple(self.average.parameters()), tuple(self.net.parameters()))

    def move(self, average: tuple[Tensor, ...], current: tuple[Tensor, ...]) -> None:
        """A step of the average, with α = min(1 - 1/(step + 1), limit): at first the plain mean over all steps."""
        decay = torch.minimum(1 - 1 / (self.steps + 1), self.most_decay)
        torch._foreach_mul_(average, decay)
        torch._foreach_add_(average, torch._foreach_mul(current, 1 - decay))

    def update_statistics(self, stage: Stage) -> None:
        """The average normalises with the network's running batch statistics."""
        for mine, buffer in zip(self.average.buffers(), self.net.buffers(), strict=True):
            mine.copy_(buffer)

    def network(self) -> Net:
        return self.average

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"average": self.average, "clock": self.clock}
