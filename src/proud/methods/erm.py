"""Source-only training: cross-entropy on the labeled domain, the floor that every method must beat.

Same network, same simple augmentations and the same number of optimizer steps as ProUD's two phases together.
With `noisemix` each batch is doubled by NoiseMix copies, as in ProUD's pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.lazy import torch
from proud.methods.base import Method, MethodConfig, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from proud.randomness import Draw, Draws


@dataclass(frozen=True)
class ERMConfig(MethodConfig):
    noisemix: bool = False
    """add NoiseMix copies of every image"""


class ERM(Method):
    Config = ERMConfig
    config: ERMConfig

    def stages(self) -> list[Stage]:
        pools = {"labeled": len(self.context.labeled)}
        return [
            Stage("pretrain", self.config.pretrain_epochs, self.steps_for(len(self.context.labeled)), pools),
            Stage("main", self.config.epochs, self.steps_for(len(self.context.unlabeled)), pools),
        ]

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return self.labeled_draws(self.config.noisemix)

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return {"loss": self.labeled_loss(rows["labeled"], draws, self.config.noisemix)}

    def labeled_draws(self, noisemix: bool) -> dict[str, Draw]:
        from proud.randomness import Draw

        wanted = {"augment": Draw((self.config.batch_size, 9), sample_dim=0)}
        return wanted | self.noise_draws(1) if noisemix else wanted

    def labeled_loss(self, rows: Tensor, draws: Draws, noisemix: bool) -> Tensor:
        """Cross-entropy on augmented labeled images and, with `noisemix`, on their NoiseMix copies."""
        with torch.no_grad():
            x = self.view(self.context.labeled.take(rows), draws["augment"])
            labels = self.context.labels[rows]
            if noisemix:
                x = torch.cat([x, self.noise_copy(x, draws)])
                labels = labels.repeat(2)
        with self.autocast():
            _, logits = self.net(x)
        return torch.nn.functional.cross_entropy(logits.float(), labels)
