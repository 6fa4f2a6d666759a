"""A model's answers about images: class, confidence, prediction set, and whether to abstain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from proud.errors import UserError
from proud.trust.calibration import probabilities
from proud.trust.conformal import Score, prediction_sets
from proud.trust.fitted import DEFAULT_RISK, SCORES, Trust, check_coverage, check_risk

if TYPE_CHECKING:
    from proud.model.adapt import Adapted
    from proud.model.predict import Model


@dataclass(frozen=True)
class AnswerOptions:
    """Coverage and kind of prediction sets, the allowed risk, and whether to give the probability of every class."""

    coverage: float = 0.9
    risk: float = DEFAULT_RISK
    sets: Score = "lac"
    probabilities: bool = False

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        check_risk(self.risk)
        if self.sets not in SCORES:
            raise UserError(f"--sets {self.sets} must be one of {', '.join(SCORES)}.")


def assess(model: Model, images: Tensor, options: AnswerOptions) -> dict[str, list[Any]]:
    """For stored uint8 images: label and confidence; calibrated models add `set` (classes by falling probability) and
    `abstain`; on request, `probabilities` [K]. Classes are numbers."""
    return assess_logits(model, model.logits(images), options)


def assess_logits(model: Model, logits: Tensor, options: AnswerOptions) -> dict[str, list[Any]]:
    """`assess`, for logits [N,K] that were computed before."""
    trust = model.trust
    raw = probabilities(logits)
    calibrated = probabilities(logits, trust.temperature if trust else 1.0)
    shown, labels = calibrated.max(1)
    found: dict[str, list[Any]] = {"label": labels.tolist(), "confidence": [round(p, 6) for p in shown.tolist()]}
    if trust:
        inside = prediction_sets(raw, trust.quantile(options.coverage, options.sets), options.sets).tolist()
        threshold = trust.threshold(options.risk)
        order = raw.argsort(dim=1, descending=True, stable=True).tolist()
        found["set"] = [[k for k in likely if member[k]] for likely, member in zip(order, inside, strict=True)]
        found["abstain"] = [threshold is None or sure < threshold for sure in raw.amax(1).tolist()]
    if options.probabilities:
        found["probabilities"] = list(calibrated.numpy())
    return found


def assess_site(model: Model, found: Adapted, options: AnswerOptions) -> dict[str, list[Any]]:
    """`assess`, for the images of one site together; `plain` is the label of each image alone."""
    rest = assess_logits(model, found.logits, options)
    return {"label": rest.pop("label"), "plain": found.plain.argmax(1).tolist()} | rest


def answers(model: Model, images: Tensor, options: AnswerOptions) -> list[dict[str, Any]]:
    """The result of `assess`, one row per image, as in predictions.csv."""
    return as_rows(model, assess(model, images, options))


def as_rows(model: Model, found: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The result of `assess`, one row per image, with the names of the classes."""
    for column in {"label", "plain"} & found.keys():
        found[column] = [model.classes[k] for k in found[column]]
    if "set" in found:
        found["set"] = [" | ".join(model.classes[k] for k in inside) for inside in found["set"]]
        found["abstain"] = ["yes" if abstain else "no" for abstain in found["abstain"]]
    return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]


def as_arrays(found: dict[str, list[Any]], names: np.ndarray) -> dict[str, np.ndarray]:
    """The result of `assess`, one array per column, with these class names."""
    plain = names.tolist()
    columns = {column: np.array(values) for column, values in found.items() if column != "set"}
    for column in {"label", "plain"} & found.keys():
        columns[column] = names[np.array(found[column], dtype=np.int64)]
    if "set" in found:
        sets = (tuple(plain[k] for k in inside) for inside in found["set"])
        columns["set"] = np.fromiter(sets, dtype=object, count=len(found["set"]))
    return {column: columns[column] for column in found}


def guarantee(trust: Trust | None, options: AnswerOptions, adapted: bool = False) -> str:
    """What the columns of predictions.csv do and do not guarantee, in a sentence or two."""
    if trust is None:
        return (
            "The model was trained without validation images: its confidence is not calibrated, and there are no "
            "prediction sets or abstentions."
        )
    about = "about " if trust.folds else ""
    text = (
        f"confidence: {trust.calibration()}; "
        f"set: contains the true class for {about}{100 * options.coverage:g} % of new images of the labeled domain; "
        f"abstain: at most {about}{100 * options.risk:g} % of the other answers are wrong there"
        + (", if the model is as good as the networks of the folds. " if trust.folds else ". ")
        + "On other domains neither is guaranteed: measure them with proud evaluate."
    )
    if adapted:
        text = (
            "confidence, set and abstain were fitted on answers to single images of the labeled domain: for adapted "
            "answers nothing is guaranteed. Measure them with proud evaluate --adapt."
        )
    if trust.threshold(options.risk) is None:
        lowest = trust.lowest_risk()
        hint = f"; the lowest possible is {100 * lowest:g} %" if lowest else ", nor any risk up to 30 %"
        text += (
            f" All images are marked abstain: {trust.images} {'labeled' if trust.folds else 'validation'} images "
            f"cannot support a risk of {100 * options.risk:g} %{hint}."
        )
    return text
