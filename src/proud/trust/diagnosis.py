"""How a site's pseudo-labels look, without a single true label of it: signals, one score, a verdict in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proud.lazy import ops, torch

if TYPE_CHECKING:
    from torch import Tensor

    from proud.ops import PseudoLabels

LAST_EPOCHS = 5  # signals are means over these
SHOWN_IMAGES = 24


def site_signals(
    found: PseudoLabels, class_share: Tensor, merged: Tensor | None = None, before: Tensor | None = None
) -> dict[str, Tensor]:
    """Scalars on the device.

    class_shift: total variation between the pseudo-labels' class mix and the labeled domain's [K], in [0, 1].
    agreement: mean share of the views that find the label by themselves.
    prototype_shift: mean cosine distance of the site's prototypes to the merged ones [K,d], over its classes.
    stability: share of the labels that are those of the epoch before [N].
    """
    classes = len(class_share)
    mix = torch.bincount(found.labels, minlength=classes) / len(found.labels)
    signals = {"class_shift": (mix - class_share).abs().sum() / 2}
    if found.agreement is not None:
        signals["agreement"] = found.agreement.mean()
    if merged is not None and found.prototypes.shape == merged.shape:
        apart = ops.cosine_distance(found.prototypes, merged).diagonal()
        signals["prototype_shift"] = (apart * found.present).sum() / found.present.sum().clamp_min(1)
    if before is not None and before.shape == found.labels.shape:
        signals["stability"] = (before == found.labels).float().mean()
    return signals
