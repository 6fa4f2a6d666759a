"""RSC (Huang et al., ECCV 2020, "Self-Challenging Improves Cross-Domain Generalization").

Each step finds the parts of the last feature map that the true class leans on most, mutes them, and trains on what is
left. It sees the labeled domain only, and like source-only training takes two stages; it is at work in both, but for
the first few steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proud.config import Share
from proud.errors import UserError
from proud.lazy import torch
from proud.methods.base import MethodConfig, Sizes, Stage
from proud.methods.erm import ERM, ERMConfig
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from proud.methods.context import Context
    from proud.nets.models import Net
    from proud.randomness import Randomness


@dataclass(frozen=True)
class RSCConfig(ERMConfig):
    drop_share: Share = 1 / 3
    """share of channels, or of positions, that is muted"""
    batch_share: Share = 0.3
    """share of the batch that is challenged in the first third of training"""
    batch_share_growth: Share = 0.2
    """what each further third of training adds to that share"""
    warmup: Share = 0.05
    """share of training before the first challenge: a randomly initialised network must find features first"""
    spatial_p: Share = 0.5
    """how often a batch loses positions; else it loses channels"""


class RSC(ERM):
    Config = RSCConfig
    config: RSCConfig
    distributed = False  # the hardest hit are chosen from the whole batch

    def __init__(self, config: RSCConfig, context: Context) -> None:
        super().__init__(config, context)
        # how many images of the batch are challenged: a tensor, so that a captured step sees its growth
        self.challenged = torch.zeros((), dtype=torch.int64, device=context.device)

    @classmethod
    def stages(cls, config: MethodConfig, sizes: Sizes) -> list[Stage]:
        # the challenged share grows with the share of all steps that is done
        return cls.pretrain_and_main(config, sizes, main=("labeled",), sees_ahead=True)

    def begin_epoch(self, stage: Stage, epoch: int, random: Randomness) -> None:
        super().begin_epoch(stage, epoch, random)
        done = self.progress(stage, epoch)
        share = self.config.batch_share + self.config.batch_share_growth * int(3 * done)
        if done < self.config.warmup:
            share = 0.0
        images = self.config.batch_size * (2 if self.config.noisemix else 1)
        self.challenged.fill_(round(min(share, 1.0) * images))

    def progress(self, stage: Stage, epoch: int) -> float:
        """The share of all optimizer steps that is done when this epoch begins."""
        stages = self.stage_list()
        before = sum(s.epochs * s.steps for s in stages[: [s.name for s in stages].index(stage.name)])
        return (before + epoch * stage.steps) / sum(s.epochs * s.steps for s in stages)

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return {**super().draws(stage), "spatial": Draw((1,))}

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        with torch.no_grad():
            x = self.views.simple(self.context.labeled.take(rows["labeled"]), draws["augment"])
            labels = self.context.labels[rows["labeled"]]
            if self.config.noisemix:
                x = torch.cat([x, self.views.noise_copies(x, draws)])
                labels = labels.repeat(2)
        with self.context.autocast():
            z, pool = feature_map(self.net, x)
            with torch.no_grad():
                kept = self.challenge(z, pool, labels, draws["spatial"] < self.numbers.spatial_p)
            logits = self.net.head(pool(z * kept.to(z.dtype)))
        return {"loss": torch.nn.functional.cross_entropy(logits.float(), labels)}

    def challenge(self, z: Tensor, pool: Callable[[Tensor], Tensor], labels: Tensor, spatial: Tensor) -> Tensor:
        """Which features each image keeps. [N,C,H,W], [N] -> [N,C,H,W] bool."""
        features, pull_back = torch.func.vjp(pool, z)  # type: ignore[misc]
        # the head is linear, so the gradient of the true class's logit at the features is that class's weights
        (gradient,) = pull_back(self.net.head.weight[labels].to(features.dtype))
        muted = muted_features(z.float(), gradient.float(), self.config.drop_share, spatial)
        before = true_probability(self.net.head(features), labels)
        after = true_probability(self.net.head(pool(z * (~muted).to(z.dtype))), labels)
        return ~(muted & hit_hardest(before, after, self.challenged)[:, None, None, None])


def feature_map(net: Net, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The last spatial map of the backbone, [N,C,H,W], and the function from it to the features."""
    backbone: Any = net.backbone
    if hasattr(backbone, "convolutions"):  # the digits net flattens its map
        channels = backbone.convolutions[-1].out_channels
        side = math.isqrt(net.num_features // channels)
        return backbone(x).unflatten(1, (channels, side, side)), lambda z: z.flatten(1)
    z = backbone.forward_features(x)
    if z.ndim != 4:
        raise UserError("RSC mutes channels and positions of a feature map: choose a convolutional --model.")
    return z, backbone.forward_head


def muted_features(z: Tensor, gradient: Tensor, share: float, spatial: Tensor) -> Tensor:
    """The share of positions, or of channels, that speaks most for the true class. [N,C,H,W] twice -> [N,C,H,W] bool.

    A channel's score is its mean gradient; a position's is its activations' sum, weighted by those means.
    """
    weight = gradient.mean((2, 3))
    channels = top_share(weight, share)[:, :, None, None]
    positions = top_share((z * weight[:, :, None, None]).sum(1).flatten(1), share).unflatten(1, z.shape[2:])[:, None]
    return torch.where(spatial, positions.expand_as(z), channels.expand_as(z))


def top_share(scores: Tensor, share: float) -> Tensor:
    """Marks the ceil(share · M) largest of each row; of equal ones the first. [N,M] -> [N,M] bool."""
    return descending_rank(scores) < math.ceil(share * scores.shape[-1])


def hit_hardest(before: Tensor, after: Tensor, count: Tensor, least: float = 1e-4) -> Tensor:
    """The `count` images whose true class lost most probability, if it lost more than `least`. [N] -> [N] bool."""
    loss = before - after - least
    return (descending_rank(loss) < count) & (loss > 0)


def descending_rank(scores: Tensor) -> Tensor:
    """0 for the largest along the last dimension, 1 for the next, ..."""
    return scores.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)


def true_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """[N,K], [N] -> [N]."""
    return logits.float().softmax(1).gather(1, labels[:, None])[:, 0]
