"""FixMatch (Sohn et al., 2020): confident predictions on weakly augmented images label strongly augmented ones.

The unlabeled domains are one pool. Labeled, weak and strong images share a forward pass, and so its batch statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import NotNegative, Share
from proud.lazy import ops, torch
from proud.methods.base import Method, Stage
from proud.methods.ema import EMAConfig, WeightAverage
from proud.methods.views import SIMPLE_UNIFORMS
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.context import Context


@dataclass(frozen=True)
class FixMatchConfig(EMAConfig):
    confidence: Share = 0.95
    """least probability of a pseudo-label that is used"""
    unlabeled_weight: NotNegative = 1.0
    """weight of the loss on unlabeled images"""


class FixMatch(Method):
    Config = FixMatchConfig
    config: FixMatchConfig

    def __init__(self, config: FixMatchConfig, context: Context) -> None:
        super().__init__(config, context)
        self.average = WeightAverage(context, lambda stage, epoch: config.ema_decay)

    def draws(self, stage: Stage) -> dict[str, Draw]:
        if stage.name == "pretrain":
            return self.labeled_draws(self.config.noisemix)
        batch = self.config.batch_size
        wanted = {
            "augment": Draw((3, batch, SIMPLE_UNIFORMS), sample_dim=1),
            "strong": Draw((batch, ops.RAND_AUGMENT_UNIFORMS), sample_dim=0),
        }
        return wanted | self.views.noise_draws(2) if self.config.noisemix else wanted

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        context, config = self.context, self.config
        if stage.name == "pretrain":
            return {"loss": self.labeled_loss(rows["labeled"], draws, config.noisemix)}
        with torch.no_grad():
            labeled = self.views.simple(context.labeled.take(rows["labeled"]), draws["augment"][0])
            weak, strong = self.unlabeled_views(context.unlabeled.take(rows["unlabeled"]), draws)
            if config.noisemix:
                labeled_copy, weak_copy = self.views.noise_copies(torch.cat([labeled, weak]), draws).chunk(2)
                labeled, strong = torch.cat([labeled, labeled_copy]), torch.cat([strong, weak_copy])
        with self.context.autocast():
            _, logits = self.net(torch.cat([labeled, weak, strong]))
        on_labeled, on_weak, on_strong = logits.float().split([len(labeled), len(weak), len(strong)])
        labels = context.labels[rows["labeled"]].repeat(len(labeled) // len(rows["labeled"]))
        ce = torch.nn.functional.cross_entropy(on_labeled, labels)
        pseudo, used = pseudo_label(on_weak, self.numbers.confidence)
        unlabeled = masked_cross_entropy(on_strong.unflatten(0, (-1, len(weak))), pseudo, used)
        loss = ce + self.numbers.unlabeled_weight * unlabeled
        return {"loss": loss, "ce": ce, "unlabeled": unlabeled, "used": used.mean()}

    def unlabeled_views(self, images: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """α(u) and A(u), normalised: translated and flipped; and that (drawn anew) under RandAugment and Cutout."""
        context = self.context
        weak, strong = (self.views.shifted(images, uniform) for uniform in draws["augment"][1:])
        strong = ops.rand_augment(strong, draws["strong"])
        return ops.normalize(weak, context.mean, context.std), ops.normalize(strong, context.mean, context.std)


def pseudo_label(logits: Tensor, confidence: float | Tensor) -> tuple[Tensor, Tensor]:
    """argmax q and 1[max q ≥ τ] of q = softmax(logits), without gradient. [N,K] -> [N] int64, [N] 0 or 1."""
    top, label = logits.detach().softmax(-1).max(-1)
    return label, (top >= confidence).to(logits.dtype)


def masked_cross_entropy(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy of each of V strong views, averaged over all, masked ones counting as 0. [V,N,K], [N], [N]."""
    losses = -logits.log_softmax(-1).gather(-1, labels.expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return (mask * losses).mean()
