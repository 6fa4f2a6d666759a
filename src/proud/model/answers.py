"""What a model says about an image besides its class: confidence, prediction set, uncertainty, whether to abstain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from proud.errors import UserError
from proud.files import check_tensors, read_json, read_tensors
from proud.trust.calibration import probabilities
from proud.trust.conformal import Score, prediction_sets
from proud.trust.fitted import SCORES, Trust, check_coverage, check_risk, read_trust, uncertainty_to_prototypes

if TYPE_CHECKING:
    from proud.model.predict import Model

PROTOTYPES = "prototypes.safetensors"
MOST_PROTOTYPE_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Asked:
    """What the user wants of sets and abstention, and whether the probability of every class."""

    coverage: float = 0.9
    risk: float = 0.05
    sets: Score = "lac"
    probabilities: bool = False

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        check_risk(self.risk)
        if self.sets not in SCORES:
            raise UserError(f"--sets {self.sets} must be one of {', '.join(SCORES)}.")


def assess(model: Model, images: Tensor, asked: Asked) -> dict[str, list[Any]]:
    """For stored uint8 images: label and confidence; calibrated models add `set` (all classes that the image can have,
    the likeliest first) and `abstain`; those with prototypes add `uncertainty`, in nats; where it is asked for,
    `probabilities` [K]. Classes are numbers."""
    features, logits = model.outputs(images)
    trust = model.trust
    raw = probabilities(logits)
    calibrated = probabilities(logits, trust.temperature if trust else 1.0)
    shown, labels = calibrated.max(1)
    found: dict[str, list[Any]] = {"label": labels.tolist(), "confidence": [round(p, 6) for p in shown.tolist()]}
    if trust:
        inside = prediction_sets(raw, trust.quantile(asked.coverage, asked.sets), asked.sets).tolist()
        threshold = trust.threshold(asked.risk)
        order = raw.argsort(dim=1, descending=True, stable=True).tolist()
        found["set"] = [[k for k in likely if member[k]] for likely, member in zip(order, inside, strict=True)]
        found["abstain"] = [threshold is None or sure < threshold for sure in raw.amax(1).tolist()]
    if model.prototypes:
        doubts = uncertainty_to_prototypes(features, model.prototypes)
        found["uncertainty"] = [round(doubt, 4) for doubt in doubts.tolist()]
    if asked.probabilities:
        found["probabilities"] = list(calibrated.numpy())
    return found


def answers(model: Model, images: Tensor, asked: Asked) -> list[dict[str, Any]]:
    """What `assess` finds, a row for each image, in the words of predictions.csv."""
    found = assess(model, images, asked)
    found["label"] = [model.classes[k] for k in found["label"]]
    if "set" in found:
        found["set"] = [" | ".join(model.classes[k] for k in inside) for inside in found["set"]]
        found["abstain"] = ["yes" if abstain else "no" for abstain in found["abstain"]]
    return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]


def as_arrays(found: dict[str, list[Any]], names: np.ndarray) -> dict[str, np.ndarray]:
    """What `assess` finds, an array for each column, the classes under these names."""
    plain = names.tolist()
    columns = {column: np.array(values) for column, values in found.items() if column != "set"}
    columns["label"] = names[np.array(found["label"], dtype=np.int64)]
    if "set" in found:
        sets = (tuple(plain[k] for k in inside) for inside in found["set"])
        columns["set"] = np.fromiter(sets, dtype=object, count=len(found["set"]))
    return {column: columns[column] for column in found}


def promise(trust: Trust | None, asked: Asked) -> str:
    """What the columns of a table of predictions do and do not promise, in a sentence or two."""
    if trust is None:
        return (
            "The model was trained without validation images: its confidence is not calibrated, and there are neither "
            "sets nor abstentions."
        )
    text = (
        f"confidence: {trust.calibration()}; "
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
