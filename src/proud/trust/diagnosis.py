"""How a site's pseudo-labels look, without a single true label of it: signals, one score, a verdict in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proud.lazy import ops

if TYPE_CHECKING:
    from torch import Tensor

    from proud.ops import PseudoLabels

LAST_EPOCHS = 5  # signals are means over these
SHOWN_IMAGES = 24


def site_signals(
    found: PseudoLabels, mixes: Tensor, merged: Tensor | None = None, before: Tensor | None = None
) -> dict[str, Tensor]:
    """Scalars on the device.

    class_shift: total variation between the pseudo-labels' class mix and the nearest plausible one [M,K], in [0, 1].
    agreement: mean share of the views that find the label by themselves.
    prototype_shift: mean cosine distance of the site's prototypes to the merged ones [K,d], over its classes.
    stability: share of the labels that are those of the epoch before [N].
    uncertain: share of the images whose uncertainty is above half of its maximum, ln K.
    """
    classes = mixes.shape[1]
    mix = ops.class_mix(found.labels, classes)
    signals = {
        "class_shift": (mixes - mix).abs().sum(1).min() / 2,
        "uncertain": (found.uncertainty > LIMITS.uncertain * math.log(max(classes, 2))).float().mean(),
    }
    if found.agreement is not None:
        signals["agreement"] = found.agreement.mean()
    if merged is not None and found.prototypes.shape == merged.shape:
        apart = ops.cosine_distance(found.prototypes, merged).diagonal()
        signals["prototype_shift"] = (apart * found.present).sum() / found.present.sum().clamp_min(1)
    if before is not None and before.shape == found.labels.shape:
        signals["stability"] = (before == found.labels).float().mean()
    return signals


@dataclass(frozen=True)
class Limits:
    """All that turns signals into words. Chosen on the development cells of Digits-DG (docs/trust.md)."""

    good: float = 0.85
    """a score from here on: the pseudo-labels look sound"""
    harmful: float = 0.75
    """a score below: most of what this site teaches is likely wrong"""
    uncertain: float = 0.5
    """an image counts as uncertain above this share of the largest possible uncertainty, ln K"""
    sound_uncertain: float = 0.5
    """with a larger share of uncertain images nothing is called sound"""
    class_shift: float = 0.3
    """a class mix this far from every plausible one is worth a word"""


LIMITS = Limits()


@dataclass(frozen=True)
class Site:
    """One unlabeled domain: what was seen, the score from 0 to 1, and what it means."""

    name: str
    score: float
    verdict: str  # sound, doubtful, or harmful
    text: str
    signals: dict[str, float]
    look_at: tuple[dict[str, Any], ...] = ()  # path, label, uncertainty of the images to look at first

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def recent_signals(records: Sequence[dict[str, Any]], name: str) -> dict[str, float]:
    """Means of a site's signals over the last epochs that have them. True labels are left out."""
    rows = [record["domains"][name] for record in records if name in record.get("domains", {})][-LAST_EPOCHS:]
    keys = dict.fromkeys(key for row in rows for key in row if key not in ("accuracy", "audited"))
    found = {key: [row[key] for row in rows if key in row] for key in keys}
    return {key: sum(values) / len(values) for key, values in found.items()}


def site_score(signals: dict[str, float]) -> float:
    """The mean of what speaks for the labels, of those signals that there are: labels that stay, views that agree, a
    plausible class mix."""
    parts = [signals[name] for name in ("stability", "agreement") if name in signals]
    parts.append(1 - signals["class_shift"])
    return sum(parts) / len(parts)


def diagnose(
    records: Sequence[dict[str, Any]],
    look_at: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    limits: Limits = LIMITS,
) -> list[Site]:
    """A verdict per site, from the records of a run (records.jsonl)."""
    names = dict.fromkeys(name for record in records for name in record.get("domains", {}))
    sites = []
    for name in names:
        signals = recent_signals(records, name)
        if "class_shift" not in signals:  # records of older runs
            continue
        score = site_score(signals)
        verdict = "sound" if score >= limits.good else "doubtful" if score >= limits.harmful else "harmful"
        if verdict == "sound" and signals.get("uncertain", 0) > limits.sound_uncertain:
            verdict = "doubtful"
        images = tuple((look_at or {}).get(name, ()))[:SHOWN_IMAGES]
        sites.append(Site(name, score, verdict, _text(name, verdict, signals, len(images), limits), signals, images))
    return sites


def _text(name: str, verdict: str, signals: dict[str, float], images: int, limits: Limits) -> str:
    seen = []
    if "stability" in signals:
        seen.append(f"{100 * (1 - signals['stability']):.0f} % of the pseudo-labels change from epoch to epoch")
    if "agreement" in signals:
        seen.append(f"views agree on {100 * signals['agreement']:.0f} %")
    if signals["class_shift"] > limits.class_shift:
        seen.append(f"the class mix differs from what is plausible by {100 * signals['class_shift']:.0f} %")
    uncertain = f"{100 * signals['uncertain']:.0f} % uncertain" if "uncertain" in signals else ""
    if verdict == "sound":
        steady = "stable" if "stability" in signals else "look sound (one epoch: whether they stay is not known)"
        return f"{name}: pseudo-labels {steady}" + (f", {uncertain}" if uncertain else "")
    look = f"; look at these {images} images" if images else ""
    words = {"doubtful": "doubtful", "harmful": "likely harmful"}[verdict]
    return f"{name}: {words}{look} ({'; '.join([*seen, *([uncertain] if uncertain else [])])})"


def most_doubtful(found: PseudoLabels, known: Tensor | None = None, count: int = SHOWN_IMAGES) -> Tensor:
    """Rows of the images to look at first: the most uncertain, without those whose label was stated. [<= count]."""
    doubt = found.uncertainty
    if known is not None:
        doubt = doubt.masked_fill(known.to(doubt.device) >= 0, -1)
    order = doubt.argsort(descending=True, stable=True)
    return order[: min(count, int((doubt >= 0).sum()))]
