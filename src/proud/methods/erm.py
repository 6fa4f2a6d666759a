"""Source-only training: cross-entropy on the labeled domain, the floor that every method must beat.

Same network, same simple augmentations and the same number of optimizer steps as ProUD's two phases together.
With `noisemix` each batch is doubled by NoiseMix copies, as in ProUD's pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proud.methods.base import Method, MethodConfig, Sizes, Stage
from proud.randomness import Draw, Draws

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ERMConfig(MethodConfig):
    noisemix: bool = False
    """add NoiseMix copies of every image"""


class ERM(Method):
    Config = ERMConfig
    config: ERMConfig
    distributed = True

    @classmethod
    def stages(cls, config: MethodConfig, sizes: Sizes) -> list[Stage]:
        return cls.pretrain_and_main(config, sizes, main=("labeled",))

    def draws(self, stage: Stage) -> dict[str, Draw]:
        return self.labeled_draws(self.config.noisemix)

    def losses(self, stage: Stage, rows: dict[str, Tensor], draws: Draws) -> dict[str, Tensor]:
        return {"loss": self.labeled_loss(rows["labeled"], draws, self.config.noisemix)}
