"""Mean Teacher (Tarvainen and Valpola, 2017): the student must agree with a moving average of itself.

The unlabeled domains are one pool. Labeled and unlabeled images share a forward pass, and so its batch statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import Decay, NotNegative, WholeNumber
from proud.lazy import torch
from proud.methods.base import Method, Stage
from proud.methods.ema import EMAConfig, WeightAverage
from proud.methods.views import SIMPLE_UNIFORMS
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context
    from proud.randomness import Randomness


@dataclass(frozen=True)
class MeanTeacherConfig(EMAConfig):
    ema_decay_rampup: Decay = 0.99
    """decay of the teacher while the consistency weight still rises"""
    consistency: NotNegative = 10.0
    """final weight of the consistency loss"""
    rampup_epochs: WholeNumber = 5
    """epochs of the main phase over which that weight rises"""


class MeanTeacher(Method):
    Config = MeanTeacherConfig
    config: MeanTeacherConfig
    average: WeightAverage

    def __init__(self, config: MeanTeacherConfig, context: Context) -> None:
        super().__init__(config, context)
        # the teacher keeps the batch statistics of its own forward passes
        self.average = WeightAverage(context, self.decay_limit, statistics="own")
        self.rampup_steps = torch.ones((), device=context.device)

    def decay_limit(self, stage: Stage, epoch: int) -> float:
        return self.config.ema_decay_rampup if epoch < self.config.rampup_epochs else self.config.ema_decay

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        super().begin_epoch(stage, epoch, random)
        self.rampup_steps.fill_(max(1, self.config.rampup_epochs * stage.steps))

    def draws(self, stage: Stage) -> dict[str, Draw]:
        if stage.name == "pretrain":
            return self.labeled_draws(self.config.noisemix)
        wanted = {"augment": Draw((2, 2, self.config.batch_size, SIMPLE_UNIFORMS), sample_dim=2)}
        return wanted | self.views.noise_draws(2) if self.config.noisemix else wanted

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        context, config = self.context, self.config
        if stage.name == "pretrain":
            return {"loss": self.labeled_loss(rows["labeled"], draws, config.noisemix)}
        with torch.no_grad():
            images = torch.cat([context.labeled.take(rows["labeled"]), context.unlabeled.take(rows["unlabeled"])])
            x, seen_by_teacher = (self.views.simple(images, uniform.flatten(0, 1)) for uniform in draws["augment"])
            if config.noisemix:
                x = torch.cat([x, self.views.noise_copies(x, draws)])
            with self.context.autocast():
                _, teacher = self.average.net(seen_by_teacher)
        with self.context.autocast():
            _, student = self.net(x)
        labels = context.labels[rows["labeled"]]
        student = student.float().unflatten(0, (-1, 2, len(labels)))  # [originals and copies, labeled and not, B, K]
        teacher = teacher.float().unflatten(0, (2, len(labels)))
        ce = torch.nn.functional.cross_entropy(student[:, 0].flatten(0, 1), labels.repeat(len(student)))
        disagreement = consistency(student, teacher)
        return {"loss": ce + self.weight() * disagreement, "ce": ce, "consistency": disagreement}

    def weight(self) -> Tensor:
        """λ exp(-5 (1 - t)²), t rising from 0 to 1."""
        t = self.average.ramp(self.rampup_steps)
        return self.numbers.consistency * torch.exp(-5 * (1 - t).square())


def consistency(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference of the class probabilities; the teacher gets no gradient. [...,K], [...,K] -> scalar."""
    return (student.softmax(-1) - teacher.detach().softmax(-1)).square().mean()
