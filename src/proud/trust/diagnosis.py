"""Quality of the pseudo-labels of a site, without its true labels: signals, a score and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proud.config import LAST_EPOCHS
from proud.lazy import ops
from proud.stored import EpochRecord, LookAt

if TYPE_CHECKING:
    from torch import Tensor

    from proud.ops import PseudoLabels

SHOWN_IMAGES = 24


def site_signals(
    pseudo: PseudoLabels, mixes: Tensor, merged: Tensor | None = None, before: Tensor | None = None
) -> dict[str, Tensor]:
    """Scalars on the device.

    class_shift: total variation distance of the class distribution to the nearest plausible one [M,K], in [0, 1].
    agreement: mean share of views that predict the pseudo-label.
    prototype_shift: mean cosine distance of the site's prototypes to the merged ones [K,d], over its classes.
    stability: share of pseudo-labels unchanged since the previous epoch [N].
    uncertain: share of images with an uncertainty above half of the maximum, ln K.
    """
    classes = mixes.shape[1]
    mix = ops.class_mix(pseudo.labels, classes)
    signals = {
        "class_shift": (mixes - mix).abs().sum(1).min() / 2,
        "uncertain": (pseudo.uncertainty > LIMITS.uncertain * math.log(max(classes, 2))).float().mean(),
    }
    if pseudo.agreement is not None:
        signals["agreement"] = pseudo.agreement.mean()
    if merged is not None and pseudo.prototypes.shape == merged.shape:
        distance = ops.cosine_distance(pseudo.prototypes, merged).diagonal()
        signals["prototype_shift"] = (distance * pseudo.present).sum() / pseudo.present.sum().clamp_min(1)
    if before is not None and before.shape == pseudo.labels.shape:
        signals["stability"] = (before == pseudo.labels).float().mean()
    return signals


@dataclass(frozen=True)
class Limits:
    """Thresholds of the verdicts, chosen on the development cells of Digits-DG (docs/trust.md)."""

    good: float = 0.85
    """least score of a sound site"""
    harmful: float = 0.75
    """below this score a site is likely harmful"""
    uncertain: float = 0.5
    """an image is uncertain above this share of the maximum uncertainty, ln K"""
    sound_uncertain: float = 0.5
    """largest share of uncertain images of a sound site"""
    class_shift: float = 0.3
    """a larger class shift is mentioned in the text"""


LIMITS = Limits()


@dataclass(frozen=True)
class Site:
    """One unlabeled domain: signals, a score in [0, 1] and a verdict."""

    name: str
    score: float
    verdict: str  # sound, doubtful, or harmful
    text: str
    signals: dict[str, float]
    look_at: tuple[LookAt, ...] = ()  # path, label, uncertainty of the images to check first

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def recent_signals(records: Sequence[EpochRecord], name: str) -> dict[str, float]:
    """Means of the signals of a site over the last epochs. Signals from true labels are left out."""
    rows = [record["domains"][name] for record in records if name in record.get("domains", {})][-LAST_EPOCHS:]
    series: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, int | float) and key not in ("accuracy", "audited"):
                series.setdefault(key, []).append(value)
    return {key: sum(values) / len(values) for key, values in series.items()}


def site_score(signals: dict[str, float]) -> float:
    """The mean of stability, agreement (each if available) and 1 - class_shift."""
    parts = [signals[name] for name in ("stability", "agreement") if name in signals]
    parts.append(1 - signals["class_shift"])
    return sum(parts) / len(parts)


def diagnose(records: Sequence[EpochRecord], look_at: Mapping[str, Sequence[LookAt]] | None = None) -> list[Site]:
    """A verdict per site, from the records of a run (records.jsonl)."""
    names = dict.fromkeys(name for record in records for name in record.get("domains", {}))
    sites = []
    for name in names:
        signals = recent_signals(records, name)
        score = site_score(signals)
        verdict = "sound" if score >= LIMITS.good else "doubtful" if score >= LIMITS.harmful else "harmful"
        if verdict == "sound" and signals.get("uncertain", 0) > LIMITS.sound_uncertain:
            verdict = "doubtful"
        images = tuple((look_at or {}).get(name, ()))[:SHOWN_IMAGES]
        sites.append(Site(name, score, verdict, _text(name, verdict, signals, len(images)), signals, images))
    return sites


def _text(name: str, verdict: str, signals: dict[str, float], images: int) -> str:
    reasons = []
    if "stability" in signals:
        reasons.append(f"{100 * (1 - signals['stability']):.0f} % of the pseudo-labels change from epoch to epoch")
    if "agreement" in signals:
        reasons.append(f"views agree on {100 * signals['agreement']:.0f} %")
    if signals["class_shift"] > LIMITS.class_shift:
        reasons.append(f"the class distribution differs from any plausible one by {100 * signals['class_shift']:.0f} %")
    uncertain = f"{100 * signals['uncertain']:.0f} % uncertain" if "uncertain" in signals else ""
    if verdict == "sound":
        state = "stable" if "stability" in signals else "look sound (one epoch: stability unknown)"
        return f"{name}: pseudo-labels {state}" + (f", {uncertain}" if uncertain else "")
    look = f"; look at its {images} most uncertain images" if images else ""
    words = {"doubtful": "doubtful", "harmful": "likely harmful"}[verdict]
    return f"{name}: {words}{look} ({'; '.join([*reasons, *([uncertain] if uncertain else [])])})"


def most_doubtful(pseudo: PseudoLabels, known: Tensor | None = None, count: int = SHOWN_IMAGES) -> Tensor:
    """Rows of the most uncertain images whose label is not known, most uncertain first. [<= count]."""
    uncertainty = pseudo.uncertainty
    if known is not None:
        uncertainty = uncertainty.masked_fill(known.to(uncertainty.device) >= 0, -1)
    order = uncertainty.argsort(descending=True, stable=True)
    return order[: min(count, int((uncertainty >= 0).sum()))]
