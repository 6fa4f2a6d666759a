"""MixMatch (Berthelot et al., 2019): guess labels, sharpen them, and mix everything with everything.

The unlabeled domains are one pool. All mixed images share a forward pass, and so its batch statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import BetaParameter, Count, NotNegative, Positive, WholeNumber
from proud.lazy import ops, torch
from proud.methods.base import Method, Stage
from proud.methods.ema import EMAConfig, WeightAverage
from proud.methods.views import SIMPLE_UNIFORMS
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context


@dataclass(frozen=True)
class MixMatchConfig(EMAConfig):
    views: Count = 2
    """augmented views of each unlabeled image, whose predictions are averaged"""
    temperature: Positive = 0.5
    """temperature that sharpens the guessed labels: below 1, sharper"""
    beta: BetaParameter = 0.75
    """two images are mixed; the larger, the more evenly (parameter of a beta distribution)"""
    unlabeled_weight: NotNegative = 75.0
    """final weight of the loss on unlabeled images"""
    rampup_steps: WholeNumber = 16_384
    """optimizer steps of the main phase over which that weight rises"""


class MixMatch(Method):
    Config = MixMatchConfig
    config: MixMatchConfig
    average: WeightAverage

    def __init__(self, config: MixMatchConfig, context: Context) -> None:
        super().__init__(config, context)
        self.average = WeightAverage(context, lambda stage, epoch: config.ema_decay)
        self.rampup_steps = torch.tensor(max(1.0, config.rampup_steps), device=context.device)

    def draws(self, stage: Stage) -> dict[str, Draw]:
        config = self.config
        if stage.name == "pretrain":
            return self.labeled_draws(config.noisemix)
        groups, batch = 1 + config.views, config.batch_size
        copies = 1 + config.noisemix
        wanted = {
            "augment": Draw((groups, batch, SIMPLE_UNIFORMS), sample_dim=1),
            "shuffle": Draw((copies * groups * batch,), "permutation"),
            "ratio": Draw((copies, groups, batch), "beta", sample_dim=2, parameter=config.beta),
        }
        return wanted | self.views.noise_draws(groups) if config.noisemix else wanted

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        config = self.config
        if stage.name == "pretrain":
            return {"loss": self.labeled_loss(rows["labeled"], draws, config.noisemix)}
        with torch.no_grad():
            x, targets = self.mixed(*self.guessed(rows, draws), draws)
        with self.context.autocast():
            _, logits = self.net(x)
        groups = (-1, 1 + config.views, len(rows["labeled"]))  # [originals and copies, labeled and views, B]
        logits, targets = logits.float().unflatten(0, groups), targets.unflatten(0, groups)
        ce = ops.soft_cross_entropy(logits[:, 0], targets[:, 0])
        l2 = (logits[:, 1:].softmax(-1) - targets[:, 1:]).square().mean()
        weight = self.numbers.unlabeled_weight * self.average.ramp(self.rampup_steps)
        return {"loss": ce + weight * l2, "ce": ce, "l2": l2}

    def guessed(self, rows: dict[str, Tensor], draws: Draws) -> tuple[Tensor, Tensor]:
        """X̂ and Û with their labels, true and guessed: [(1 + K) B, ...], and their NoiseMix copies if wanted."""
        context, config = self.context, self.config
        labeled, unlabeled = context.labeled.take(rows["labeled"]), context.unlabeled.take(rows["unlabeled"])
        images = torch.cat([labeled, unlabeled.repeat(config.views, 1, 1, 1)])
        x = self.views.simple(images, draws["augment"].flatten(0, 1))
        with self.context.autocast():
            _, logits = self.net(x[len(labeled) :])
        guess = sharpen(logits.float().softmax(1).unflatten(0, (config.views, -1)).mean(0), self.numbers.temperature)
        truth = torch.nn.functional.one_hot(context.labels[rows["labeled"]], context.classes).to(guess.dtype)
        targets = torch.cat([truth, guess.repeat(config.views, 1)])
        if config.noisemix:
            x, targets = torch.cat([x, self.views.noise_copies(x, draws)]), targets.repeat(2, 1)
        return x, targets

    def mixed(self, x: Tensor, targets: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """MixUp with W, all images in random order; each stays the larger part of its mixture."""
        partner, ratio = draws["shuffle"], larger_part(draws["ratio"].flatten())
        return ops.mixup(x, partner, ratio), ops.mixup(targets, partner, ratio)


def sharpen(probs: Tensor, temperature: float | Tensor) -> Tensor:
    """p_k^(1/T) / Σ_j p_j^(1/T). [N,K] -> [N,K]."""
    return (probs.clamp_min(torch.finfo(probs.dtype).tiny).log() / temperature).softmax(-1)


def larger_part(ratio: Tensor) -> Tensor:
    """λ' = max(λ, 1 - λ)."""
    return torch.maximum(ratio, 1 - ratio)
