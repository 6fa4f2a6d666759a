"""DGvGS (Mansilla et al., ICCV 2021, "Domain Generalization via Gradient Surgery").

Each domain's loss gives a gradient; components on whose sign the domains agree are summed, the others are zeroed
(agr-sum). It was made for several labeled domains. Here there is one, so each batch is split at random into
pseudo-domains; with one pseudo-domain it is plain source-only training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.config import Count
from proud.lazy import torch
from proud.methods.base import MethodConfig, Stage
from proud.methods.erm import ERM
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import LossFunction


@dataclass(frozen=True)
class DGvGSConfig(MethodConfig):
    pseudo_domains: Count = 3
    """parts into which each batch of the labeled domain is split at random; 1 is source-only training"""


class DGvGS(ERM):
    Config = DGvGSConfig  # type: ignore[assignment]
    config: DGvGSConfig  # type: ignore[assignment]
    distributed = False  # gradients are edited before they could be averaged

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return self.labeled_draws(noisemix=False)

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return {"loss": self.labeled_loss(rows["labeled"], draws, noisemix=False)}

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws, losses: LossFunction) -> dict[str, Tensor]:
        parameters = list(self.net.parameters())
        batch = len(rows["labeled"])
        parts = min(self.config.pseudo_domains, batch)
        total = torch.zeros((), device=self.context.device)
        gradients: list[list[Tensor]] = []
        for part, augment in zip(
            rows["labeled"].tensor_split(parts), draws["augment"].tensor_split(parts), strict=True
        ):
            # weighted by size: where all agree, the sum is the whole batch's gradient
            loss = losses(stage, {"labeled": part}, {"augment": augment})["loss"] * (len(part) / batch)
            self.optimizer.zero_grad()
            loss.backward()
            gradients.append([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters])
            total = total + loss.detach()
        agreed = [agr_sum(torch.stack(found)) for found in zip(*gradients, strict=True)]
        for parameter, last, gradient in zip(parameters, gradients[-1], agreed, strict=True):
            parameter.grad = last.copy_(gradient)  # in place: it keeps the parameter's memory layout
        self.optimizer.step()
        return {"loss": total}


def agr_sum(gradients: Tensor) -> Tensor:
    """The sum over the domains where all have the same sign, zero elsewhere. [D,...] -> [...]."""
    agree = gradients.sign().sum(0).abs() == len(gradients)
    return torch.where(agree, gradients.sum(0), 0)
