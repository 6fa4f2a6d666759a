"""What records and reports show of a method, in one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from proud.ops import PseudoLabels


@dataclass(frozen=True, eq=False)
class Prototypes:
    """A method's prototypes besides those of its pseudo-labels. K classes, d features, T unlabeled domains."""

    merged: Tensor  # [K,d], over all domains
    labeled: Tensor  # [K,d]
    present: Tensor  # [K] bool: classes of the labeled domain
    tau: float  # temperature of the uncertainty
    batch_statistics: bool = False  # features were computed with each domain's own batch statistics
    centers: Tensor | None = None  # [1+T,d]: subtracted from unit features, labeled domain first


@dataclass(frozen=True, eq=False)
class Description:
    """What records and reports show of a method's state; every part is optional."""

    pseudo_labels: dict[str, PseudoLabels] = field(default_factory=dict)
    """by unlabeled domain"""
    prototypes: Prototypes | None = None
    certainty: Callable[[Tensor], Tensor] | None = None
    """λ_ε of uncertainties [N]"""
    ratio: Callable[[Tensor, Tensor], Tensor] | None = None
    """mixing ratios λ of uncertainties [N] and uniform draws [N]"""
    threshold: float = 1.0
    """λ*: a pseudo-label with a larger λ_ε counts as certain"""
    class_priors: Tensor | None = None
    """[M,K]: plausible class distributions of unlabeled domains, besides the labeled domain's"""
    warnings: tuple[str, ...] = ()
    """what a user of such data should know before training"""
