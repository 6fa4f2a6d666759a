"""Quality of the pseudo-labels of a site, without its true labels: signals, an estimated accuracy and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proud.config import LAST_EPOCHS
from proud.lazy import ops
from proud.stored import EpochRecord, LookAt
from proud.trust.site_accuracy import Estimate, estimate

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
    """Of the verdicts; the first two are for the ends of the interval of a site's estimated accuracy."""

    sound: float = 0.7
    """least lower end of a sound site"""
    poor: float = 0.5
    """an upper end below this is poor"""
    uncertain: float = 0.5
    """an image is uncertain above this share of the maximum uncertainty, ln K"""
    class_shift: float = 0.3
    """a larger class shift is mentioned in the text"""


LIMITS = Limits()


@dataclass(frozen=True)
class Site:
    """One unlabeled domain: signals, the estimated accuracy of its pseudo-labels, and a verdict."""

    name: str
    verdict: str  # sound, cannot tell, or poor
    text: str
    estimate: Estimate | None
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


def diagnose(
    records: Sequence[EpochRecord], look_at: Mapping[str, Sequence[LookAt]] | None = None, started: bool = False
) -> list[Site]:
    """A verdict per site, from the records of a run (records.jsonl).

    `started`: the run started from a trained model. Its pseudo-labels hardly change, right or wrong, so that stability
    says nothing.
    """
    names = dict.fromkeys(name for record in records for name in record.get("domains", {}))
    sites = []
    for name in names:
        signals = recent_signals(records, name)
        if started:
            signals.pop("stability", None)
        found = estimate(signals)
        images = tuple((look_at or {}).get(name, ()))[:SHOWN_IMAGES]
        verdict = verdict_of(found)
        sites.append(Site(name, verdict, _text(name, verdict, found, signals, len(images)), found, signals, images))
    return sites


def verdict_of(found: Estimate | None) -> str:
    if found is not None and found.low >= LIMITS.sound:
        return "sound"
    return "poor" if found is not None and found.high < LIMITS.poor else "cannot tell"


def estimate_text(found: Estimate) -> str:
    """For example 81 % (90 % interval 68–94 %)."""
    return f"{100 * found.accuracy:.0f} % (90 % interval {100 * found.low:.0f}–{100 * found.high:.0f} %)"


def reasons(signals: Mapping[str, float]) -> str:
    """What the estimate follows from."""
    found = []
    if "stability" in signals and "agreement" in signals:
        found.append(f"{100 * (1 - signals['stability']):.0f} % of the pseudo-labels change from epoch to epoch")
    elif "agreement" in signals:
        found.append("stability unknown")
    if "agreement" in signals:
        found.append(f"views agree on {100 * signals['agreement']:.0f} %")
    if signals.get("class_shift", 0) > LIMITS.class_shift:
        found.append(f"the class distribution differs from any plausible one by {100 * signals['class_shift']:.0f} %")
    if "uncertain" in signals:
        found.append(f"{100 * signals['uncertain']:.0f} % uncertain")
    return "; ".join(found)


def _text(name: str, verdict: str, found: Estimate | None, signals: dict[str, float], images: int) -> str:
    right = "" if found is None else f", an estimated {estimate_text(found)} of the pseudo-labels are right"
    look = f"; look at its {images} most uncertain images" if images and verdict != "sound" else ""
    return f"{name}: {verdict}{right}{look} ({reasons(signals)})"


def most_doubtful(pseudo: PseudoLabels, known: Tensor | None = None, count: int = SHOWN_IMAGES) -> Tensor:
    """Rows of the most uncertain images whose label is not known, most uncertain first. [<= count]."""
    uncertainty = pseudo.uncertainty
    if known is not None:
        uncertainty = uncertainty.masked_fill(known.to(uncertainty.device) >= 0, -1)
    order = uncertainty.argsort(descending=True, stable=True)
    return order[: min(count, int((uncertainty >= 0).sum()))]
