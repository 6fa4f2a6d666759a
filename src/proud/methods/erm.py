"""Source-only training: cross-entropy on the labeled domain, the floor that every method must beat.

Same network, same simple augmentations and the same number of optimizer steps as ProUD's two phases together.
With `noisemix` each batch is doubled by NoiseMix copies, as in ProUD's pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    DISTRIBUTED = True

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
