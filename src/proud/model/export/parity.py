"""Before an exported file is kept: does it answer as the saved model does, on real images?"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proud.data.benchmarks import open_catalog
from proud.data.checks import evenly
from proud.data.decode import Source, decode_all, pixels_of
from proud.data.walk import FORMATS
from proud.errors import UserError
from proud.model.answers import AnswerOptions
from proud.model.evaluate import find_data
from proud.model.predict import Model, find_images
from proud.trust.calibration import probabilities
from proud.trust.conformal import prediction_sets

Answers = dict[str, Tensor]
Program = Callable[[np.ndarray], Answers]
"""images [N,H,W,3] uint8 -> `probabilities`, and the other outputs that the format has"""

CLOSE = 1e-4
IMAGES = 24


@dataclass(frozen=True)
class Parity:
    """How far an exported file's answers are from the saved model's."""

    images: int
    source: str
    difference: float
    """the largest, of any probability"""


def check_parity(model: Model, options: AnswerOptions, program: Program, given: Sequence[Path] = ()) -> Parity:
    """Raises a UserError if a label, a prediction set or an abstention differs, or any number by more than 1e-4."""
    images, source = check_images(model, given)
    difference = 0.0
    for batch in (*(image[None] for image in images), *generated_batches(model)):
        pixels, _, _ = decode_all(list(batch), model.pixels)
        features, logits = model.outputs(pixels)
        found = program(batch)
        wanted = probabilities(logits, model.trust.temperature if model.trust else 1.0)
        difference = max(difference, (found["probabilities"].double() - wanted).abs().max().item())
        same = torch.equal(found["probabilities"].argmax(1), wanted.argmax(1)) and difference <= CLOSE
        if not same or not same_decisions(model, options, found, logits) or not close(found, features):
            raise UserError(
                f"The exported file does not answer as the saved model does (probabilities differ by up to "
                f"{difference:.1e}, of {source}): nothing was written. Try another --format."
            )
    return Parity(len(images), source, difference)


def same_decisions(model: Model, options: AnswerOptions, found: Answers, logits: Tensor) -> bool:
    """Prediction sets and abstentions, except for scores that lie on the limit: it is the score of a real image."""
    if model.trust is None or "set" not in found:
        return True
    raw = probabilities(logits)
    quantile, threshold = model.trust.quantile(options.coverage, options.sets), model.trust.threshold(options.risk)
    least, most = (prediction_sets(raw, quantile + step, options.sets) for step in (-CLOSE, CLOSE))
    sure, abstain = raw.amax(1), found["abstain"]
    if threshold is None:
        return bool(abstain.all() and (least <= found["set"]).all() and (found["set"] <= most).all())
    right = ((sure < threshold - CLOSE) <= abstain) & (abstain <= (sure < threshold + CLOSE))
    return bool(right.all() and (least <= found["set"]).all() and (found["set"] <= most).all())


def close(found: Answers, features: Tensor) -> bool:
    if "features" not in found:
        return True
    return torch.allclose(found["features"], features, rtol=CLOSE, atol=CLOSE * max(1.0, features.abs().max().item()))


# ---- which images


def check_images(model: Model, given: Sequence[Path]) -> tuple[list[np.ndarray], str]:
    """Those given, the run's own, or those of the built-in set; and what to call them."""
    if given:
        return opened(model, find_images(list(given))), "the given images"
    try:
        data, root = find_data(model.config, "", "")
        return own_images(model, data, root), data
    except UserError:  # the data may be elsewhere, or damaged by now
        return own_images(model, "embedded", ""), "the built-in set"


def own_images(model: Model, data: str, root: str) -> list[np.ndarray]:
    catalog = open_catalog(data, root)
    sources = [source for domain in catalog.domains.values() for source in catalog.sources(domain)]
    if not sources:
        raise UserError(f"{data} has no images.")
    return opened(model, sources)


def opened(model: Model, sources: Sequence[Source]) -> list[np.ndarray]:
    """Pixels [H,W,3] of some of them."""
    rows = evenly(len(sources), IMAGES)
    return [pixels_from(sources[row], model.pixels.side) for row in rows.tolist()]


def pixels_from(source: Source, side: int) -> np.ndarray:
    """uint8 [H,W,3], as it would be read for a network with this stored side."""
    if isinstance(source, np.ndarray):
        return np.array(np.broadcast_to(source, (*source.shape[:2], 3)))
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            image.draft(None, (2 * side, 2 * side))
            return np.array(pixels_of(image))  # a copy: Pillow's is read-only
    except Exception as error:  # Pillow raises errors of every kind on broken content
        raise UserError(f"{source if isinstance(source, Path) else 'An image'} cannot be read ({error}).") from error


def generated_batches(model: Model) -> list[np.ndarray]:
    """Two portraits and three landscapes of noise: shapes and batches that the images may lack."""
    chance, side = np.random.default_rng(0), model.pixels.side
    shapes = ((2, side + side // 2 + 1, side + 3, 3), (3, side // 2 + 5, side, 3))
    return [chance.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
