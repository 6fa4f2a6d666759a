"""L2D (Wang et al., ICCV 2021, "Learning to Diversify for Single Domain Generalization").

A style generator restyles the labeled images. The network learns from both and keeps what they share; then the
generator learns styles that share little with the source: two optimizers, one after the other in every step. It sees
the labeled domain only, and like source-only training takes two stages; it is at work in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import NotNegative, Positive, Share
from proud.lazy import LazyModule, ops, torch
from proud.methods.base import MethodConfig, Stage
from proud.methods.erm import ERM
from proud.randomness import Draw, Draws, seed_for

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods import style
    from proud.methods.base import LossFunction
    from proud.methods.context import Context
else:
    style = LazyModule("proud.methods.style")


@dataclass(frozen=True)
class L2DConfig(MethodConfig):
    contrast_weight: NotNegative = 1.0
    """weight of the supervised contrastive loss"""
    likelihood_weight: NotNegative = 1.0
    """weight of the variational density's likelihood"""
    beta: NotNegative = 0.1
    """weight of the mutual-information bound in the generator's loss"""
    style_lr: Positive = 0.005
    """learning rate of the style generator"""
    style_share: Share = 0.6
    """how much of a restyled image is style; the rest is the image itself"""
    contrast_temperature: Positive = 0.07
    """temperature of the supervised contrastive loss"""


class L2D(ERM):
    Config = L2DConfig  # type: ignore[assignment]
    config: L2DConfig  # type: ignore[assignment]
    distributed = False  # contrast and discrepancy compare all images of the batch

    def __init__(self, config: L2DConfig, context: Context) -> None:
        super().__init__(config, context)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(context.seed, "init", "style"))
            self.generator = style.StyleGenerator(context.size).to(context.device)
            self.variational = style.Variational(self.net.num_features).to(context.device)
        self.optimizer = self.sgd(self.net, self.variational)
        cuda = context.device.type == "cuda"
        lr = torch.tensor(config.style_lr, device=context.device) if cuda else config.style_lr
        self.style_optimizer = torch.optim.SGD(self.generator.parameters(), lr=lr, fused=cuda)

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return {
            **self.labeled_draws(noisemix=False),
            "filters": Draw((self.generator.filter_numbers,)),
            "branches": Draw((self.generator.branches,), "normal"),
        }

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws, losses: LossFunction) -> dict[str, Tensor]:
        """The network's step, then the generator's."""
        found = super().step(stage, rows, draws, losses)
        of_style = self.style_losses(rows["labeled"], draws)
        self.style_optimizer.zero_grad()
        of_style["style"].backward(inputs=list(self.generator.parameters()))
        self.style_optimizer.step()
        return found | {name: value.detach() for name, value in of_style.items()}

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        """The network learns images and their restyled copies, and draws those of a class together."""
        numbers = self.numbers
        with torch.no_grad():
            x, labels = self.images(rows["labeled"], draws)
            restyled = self.restyle(x, draws["filters"], draws["branches"])
        features, logits = self.forward(x, restyled)
        z, z_restyled = features.chunk(2)
        both = labels.repeat(2)
        mean, log_variance = self.variational(z)
        losses = {
            "ce": torch.nn.functional.cross_entropy(logits, both),
            "contrast": style.supervised_contrast(
                torch.nn.functional.normalize(features, dim=1), both, numbers.contrast_temperature
            ),
            "likelihood": style.log_likelihood(mean, log_variance, z_restyled),
        }
        losses["loss"] = (
            losses["ce"]
            + numbers.contrast_weight * losses["contrast"]
            - numbers.likelihood_weight * losses["likelihood"]
        )
        return losses

    def style_losses(self, rows: Tensor, draws: Draws) -> dict[str, Tensor]:
        """The generator keeps the classes' features and lowers what restyled images share with their originals."""
        with torch.no_grad():
            x, labels = self.images(rows, draws)
        equal = torch.ones_like(draws["branches"])
        features, _ = self.forward(x, self.restyle(x, self.generator.fixed, equal))
        z, z_restyled = features.chunk(2)
        mean, log_variance = self.variational(z)
        information = style.mutual_information_bound(mean, log_variance, z_restyled)
        consistency = style.class_mmd(z_restyled, z, labels, self.context.classes)
        return {"style": consistency + self.numbers.beta * information, "information": information}

    def images(self, rows: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.views.simple(self.context.labeled.take(rows), draws["augment"]), self.context.labels[rows]

    def restyle(self, x: Tensor, filters: Tensor, branches: Tensor) -> Tensor:
        """Mostly style, as pixels normalised like the images, and partly the image."""
        pixels = self.generator(x, filters, branches).sigmoid()
        share = self.numbers.style_share
        return share * ops.normalize(pixels, self.context.mean, self.context.std) + (1 - share) * x

    def forward(self, x: Tensor, restyled: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits of both in one pass."""
        with self.context.autocast():
            features, logits = self.net(torch.cat([x, restyled]))
        return features.float(), logits.float()
