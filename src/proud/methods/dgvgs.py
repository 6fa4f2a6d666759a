"""DGvGS (Mansilla et al., ICCV 2021, "Domain Generalization via Gradient Surgery").

Each domain's loss gives a gradient; components on whose sign the domains agree are summed, the others are zeroed
(agr-sum) or drawn at random (agr-rand). It was made for several labeled domains. Here there is one, so each batch is
split at random into pseudo-domains; with one pseudo-domain it is plain source-only training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proud.lazy import torch
from proud.methods.base import MethodConfig
from proud.methods.erm import ERM

if TYPE_CHECKING:
    from torch import Tensor

    from proud.methods.base import Stage
    from proud.randomness import Draw, Draws


@dataclass(frozen=True)
class DGvGSConfig(MethodConfig):
    surgery: Literal["agr-sum", "agr-rand"] = "agr-sum"
    """gradient components on which the pseudo-domains disagree become zero, or random"""
    pseudo_domains: int = 3
    """parts into which each batch of the labeled domain is split at random; 1 is source-only training"""


class DGvGS(ERM):
    Config = DGvGSConfig  # type: ignore[assignment]
    config: DGvGSConfig  # type: ignore[assignment]
    DISTRIBUTED = False  # gradients are edited before anyone could average them

    def draws(self, stage: Stage) -> dict[str, Draw]:
        from proud.randomness import Draw

        wanted = self.labeled_draws(noisemix=False)
        if self.config.surgery == "agr-rand":
            wanted["surgery"] = Draw((sum(p.numel() for p in self.net.parameters()),), "normal")
        return wanted

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return {"loss": self.labeled_loss(rows["labeled"], draws, noisemix=False)}

    def step(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        parameters = list(self.net.parameters())
        batch = len(rows["labeled"])
        parts = min(self.config.pseudo_domains, batch)
        total = torch.zeros((), device=self.context.device)
        gradients: list[list[Tensor]] = []
        for part, augment in zip(
            rows["labeled"].tensor_split(parts), draws["augment"].tensor_split(parts), strict=True
        ):
            # each part weighs what it holds: where all agree, the sum is the whole batch's gradient
            loss = self.losses(stage, {"labeled": part}, {"augment": augment})["loss"] * (len(part) / batch)
            self.optimizer.zero_grad()
            loss.backward()
            gradients.append([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters])
            total = total + loss.detach()
        by_parameter = [torch.stack(found) for found in zip(*gradients, strict=True)]
        if self.config.surgery == "agr-sum":
            agreed = [agr_sum(found) for found in by_parameter]
        else:
            agreed = agr_rand(by_parameter, draws["surgery"])
        for parameter, last, gradient in zip(parameters, gradients[-1], agreed, strict=True):
            parameter.grad = last.copy_(gradient)  # in place: it keeps the parameter's memory layout
        self.optimizer.step()
        return {"loss": total}


def agreement(gradients: Tensor) -> Tensor:
    """Where all domains' gradients have the same sign. [D,...] -> [...] bool."""
    return gradients.sign().sum(0).abs() == len(gradients)


def agr_sum(gradients: Tensor) -> Tensor:
    """The sum over the domains where they agree, zero elsewhere. [D,...] -> [...]."""
    return torch.where(agreement(gradients), gradients.sum(0), 0)


def agr_rand(by_parameter: list[Tensor], normal: Tensor) -> list[Tensor]:
    """As agr-sum, but N(0, s²) where they disagree; s is the mean size of what agrees. Each [D,...] -> [...]."""
    summed = [agr_sum(found) for found in by_parameter]
    count = torch.stack([agreement(found).sum() for found in by_parameter]).sum()
    scale = torch.stack([found.abs().sum() for found in summed]).sum() / count.clamp_min(1)
    noise = normal.split([found.numel() for found in summed])
    return [
        torch.where(agreement(found), agreed, scale * drawn.view_as(agreed))
        for found, agreed, drawn in zip(by_parameter, summed, noise, strict=True)
    ]
