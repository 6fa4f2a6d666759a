"""What a model says about an image besides its class: confidence, prediction set, uncertainty, whether to abstain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proud.errors import UserError
from proud.training.files import check_tensors, read_json, read_tensors
from proud.trust.calibration import probabilities
from proud.trust.conformal import Score, prediction_sets
from proud.trust.fitted import Trust, check_coverage, check_risk, read_trust, uncertainty_to_prototypes

if TYPE_CHECKING:
    from proud.deploy.predict import Model

PROTOTYPES = "prototypes.safetensors"
MOST_PROTOTYPE_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Asked:
    """What the user wants of sets and abstention."""

    coverage: float = 0.9
    risk: float = 0.05
    sets: Score = "lac"

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        check_risk(self.risk)


def answers(model: Model, images: Tensor, asked: Asked) -> list[dict[str, Any]]:
    """For stored uint8 images: label and confidence; calibrated models add `set` (all classes that the image can have,
    the likeliest first) and `abstain`; those with prototypes add `uncertainty`, in nats."""
    features, logits = model.outputs(images)
    trust = model.trust
    raw = probabilities(logits)
    shown, labels = probabilities(logits, trust.temperature if trust else 1.0).max(1)
    rows: list[dict[str, Any]] = [
        {"label": model.classes[k], "confidence": round(p, 6)}
        for k, p in zip(labels.tolist(), shown.tolist(), strict=True)
    ]
    if trust:
        inside = prediction_sets(raw, trust.quantile(asked.coverage, asked.sets), asked.sets)
        threshold = trust.threshold(asked.risk)
        order = raw.argsort(dim=1, descending=True, stable=True).tolist()
        for row, likely, member, sure in zip(rows, order, inside.tolist(), raw.amax(1).tolist(), strict=True):
            row["set"] = " | ".join(model.classes[k] for k in likely if member[k])
            row["abstain"] = "yes" if threshold is None or sure < threshold else "no"
    if model.prototypes:
        found = uncertainty_to_prototypes(features, model.prototypes)
        for row, doubt in zip(rows, found.tolist(), strict=True):
            row["uncertainty"] = round(doubt, 4)
    return rows


def promise(trust: Trust | None, asked: Asked) -> str:
    """What the columns of a table of predictions do and do not promise, in a sentence or two."""
    if trust is None:
        return (
            "The model was trained without validation images: its confidence is not calibrated, and there are neither "
            "sets nor abstentions."
        )
    text = (
        f"set: holds the true class in {100 * asked.coverage:g} % of new images of the labeled domain; "
        f"abstain: at most {100 * asked.risk:g} % of the other answers are wrong there. "
        "On other domains neither is guaranteed: measure with proud evaluate."
    )
    if trust.threshold(asked.risk) is None:
        lowest = trust.lowest_risk()
        hint = f"the lowest that can be is {100 * lowest:g} %" if lowest else "no risk up to 30 % can be"
        text += (
            f" All are marked abstain: on the {trust.images} validation images a risk of {100 * asked.risk:g} % cannot "
            f"be shown, {hint}."
        )
    return text


def read_reliability(folder: Path, classes: int, width: int) -> tuple[Trust | None, dict[str, Tensor] | None]:
    """Calibration and prototypes beside a model, None where there are none (older models, other methods)."""
    path = folder / PROTOTYPES
    try:
        trust = read_trust(read_json(folder / "model.json").get("trust"))
        found = read_tensors(path, MOST_PROTOTYPE_BYTES) if path.is_file() else None
        if found is not None:
            check_tensors(found, expected_prototypes(found, classes, width))
            if not found["tau"] > 0:
                raise ValueError("the temperature in it is not positive")
    except (OSError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"{folder} does not hold a model of this program: {error}") from error
    return trust, found


def expected_prototypes(names: Iterable[str], classes: int, width: int) -> dict[str, Tensor]:
    """Names, shapes and types of what `Method.prototypes` returns, without memory: sites are there wholly or not."""
    each, center = torch.empty(classes, width, device="meta"), torch.empty(width, device="meta")
    present = torch.empty(classes, dtype=torch.bool, device="meta")
    wanted = {"merged": each, "center": center, "tau": torch.empty(1, device="meta")}
    for name in names:
        _, slash, site = name.partition("/")
        if slash:
            wanted |= {f"site/{site}": each, f"present/{site}": present, f"center/{site}": center}
        elif name.startswith("labeled"):
            wanted |= {"labeled": each, "labeled_present": present}
    return wanted
