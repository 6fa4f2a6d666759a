"""Selective prediction: abstain below a confidence threshold, so that few answers are wrong.

As in Geifman and El-Yaniv (2017), the error rate among the answers has a Clopper-Pearson upper bound from source
validation. The risk is guaranteed for new images of the source, not for other domains. Thresholds are tested in a fixed
order, so that no correction for their number is needed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DELTA = 0.1
"""Probability, over the draw of the validation images, that the guarantee fails."""

CHAINS = 2  # beginnings of the search for a threshold


def risk_bound(errors: int, count: int, delta: float) -> float:
    """Clopper-Pearson: the error rate is below this with probability 1 - delta."""
    from scipy.stats import beta  # noqa: PLC0415

    return 1.0 if errors >= count else float(beta.ppf(1 - delta, errors + 1, count - errors))


def fewest_answers(risk: float, delta: float = DELTA) -> int:
    """How many answers, all of them right, guarantee this risk."""
    return math.ceil(math.log(delta / CHAINS) / math.log1p(-risk) - 1e-9)


def lowest_risk(images: int, delta: float = DELTA) -> float:
    """The smallest risk that so many right answers guarantee."""
    return 1 - (delta / CHAINS) ** (1 / images) if images else 1.0


def risk_threshold(confidence: Tensor, right: Tensor, risk: float, delta: float = DELTA) -> float | None:
    """The lowest confidence threshold found that bounds the share of wrong answers by `risk`, or None. [N], [N] bool.

    From a first number of answers on, one more is allowed as long as the bound holds; the first failure ends it
    (fixed-sequence testing). There are two beginnings, half of all images or, if that fails, the fewest answers that
    can guarantee the risk; each uses half of delta.
    """
    from scipy.stats import beta  # noqa: PLC0415

    if not len(confidence):
        return None
    ordered, order = confidence.double().sort(descending=True, stable=True)
    wrong = (~right[order]).long().cumsum(0)
    last = torch.cat([ordered[1:] < ordered[:-1], torch.ones(1, dtype=torch.bool)])  # equal confidences go together
    answers = torch.arange(1, len(ordered) + 1)[last]
    errors, thresholds = wrong[last], ordered[last]
    bounds = torch.from_numpy(beta.ppf(1 - delta / CHAINS, errors + 1, answers - errors)).nan_to_num(1.0)
    fewest = fewest_answers(risk, delta)
    for beginning in dict.fromkeys((max(fewest, len(ordered) // 2), fewest)):
        holds = bounds[answers >= beginning] <= risk
        passed = int(holds.long().cumprod(0).sum())
        if passed:
            return thresholds[answers >= beginning][passed - 1].item()
    return None


def answered_and_risk(confidence: Tensor, right: Tensor, threshold: float | None) -> tuple[float, float | None]:
    """Share of answered images, and share of wrong answers (None without answers). [N], [N] bool."""
    accepted = torch.zeros_like(right) if threshold is None else confidence >= threshold
    if not bool(accepted.any()):
        return 0.0, None
    return accepted.double().mean().item(), (~right[accepted]).double().mean().item()
