"""Classifying the images of one site together, without training and without changing the model.

Features are centred by the site's own mean, as DaPP centres every domain. The images of which the classifier is surest
build prototypes of the site (DaPP with a choice of images), and the model's own prototypes hold them in place where a
class is rare. All images are classified by these prototypes. No class mix of the site is assumed.

The images are processed in the order of their content, so names and order of the files change nothing. Of each image
only its features, in half precision, and its logits are kept.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from proud import ops
from proud.data.decode import Source, hash_all
from proud.errors import UserError
from proud.text import some

if TYPE_CHECKING:
    from proud.model.predict import Model
    from proud.model.reading import Reading

FEWEST_PER_CLASS = 10
STRONG_CHANGE = 0.5  # share of changed labels above which the plain ones are kept
ANCHOR = 16.0  # images that a prototype of the model counts as
SUREST = 1 / 3  # of the images of a class build its prototype
TAU = 0.06  # temperature of models without prototypes
ROWS = 8192  # processed at a time


@dataclass(frozen=True, eq=False)
class Adapted:
    """Answers about N readable images in the order of the files: the model's own, and those for the site as a whole."""

    rows: list[int]
    """their places among the files"""
    plain: Tensor
    """logits [N,K]"""
    logits: Tensor
    """[N,K], on the scale of the plain ones: the model's calibration makes them the adapted probabilities"""
    kept_plain: bool = False
    """the two disagreed so strongly that the plain answers are used"""

    @property
    def changed(self) -> float:
        """The share of images with another label."""
        return (self.plain.argmax(1) != self.logits.argmax(1)).double().mean().item()

    @property
    def notice(self) -> str:
        """How far the two are apart."""
        if self.kept_plain:
            return (
                f"Adapting would change more than {100 * STRONG_CHANGE:g} % of the labels: the images may not be of "
                "one site, or the model may fail there. The plain answers are given."
            )
        count = round(self.changed * len(self.rows))
        return (
            f"Adapting changed {count} of {len(self.rows)} labels ({100 * self.changed:.1f} %); the column plain holds "
            "the label without it. Nothing guarantees that these are better: check some of them."
        )


def adapt_site(model: Model, reading: Reading) -> Adapted:
    """All images of one site. Fewer than ten per class of the model are refused."""
    least = FEWEST_PER_CLASS * len(model.classes)
    if len(reading.sources) < least:
        raise UserError(too_few(least, len(reading.sources)))
    if text := several_sites(reading.sources, model.classes):
        warnings.warn(text, stacklevel=2)
    contents = hash_all(reading.sources)
    order = sorted(range(len(contents)), key=lambda row: (contents[row], row))
    ordered = replace(reading, sources=[reading.sources[row] for row in order])
    rows: list[int] = []
    outputs: list[tuple[Tensor, Tensor]] = []
    for places, images in ordered.pieces():
        rows += [order[place] for place in places]
        features, logits = model.outputs(images)
        outputs.append((unit_features(features), logits))
    reading.bad = ordered.bad
    if len(rows) < least:
        raise UserError(too_few(least, len(rows)))
    unit, plain = map(torch.cat, zip(*outputs, strict=True))
    del outputs
    found = together(model, unit, plain)
    back = torch.tensor(rows).argsort()
    kept = (found.argmax(1) != plain.argmax(1)).double().mean().item() > STRONG_CHANGE
    return Adapted(sorted(rows), plain[back], (plain if kept else found)[back], kept)


def several_sites(sources: Sequence[Source], classes: Sequence[str]) -> str:
    """A warning if the files lie in several folders that each hold folders of classes."""
    folders = {path.parent.absolute() for path in sources if isinstance(path, Path)}
    top = os.path.commonpath(folders) if folders else ""
    levels = {folder.relative_to(top).parts[:2] for folder in folders}
    sites = {each[0] for each in levels if len(each) == 2 and each[0] not in classes and each[1] in classes}
    if len(sites) < 2:
        return ""
    return (
        f"Each of the folders {some(sorted(sites))} holds folders of classes: if they are several sites, adapt to each "
        "of them alone."
    )


def too_few(least: int, there: int) -> str:
    return (
        f"Adapting needs at least {FEWEST_PER_CLASS} images per class of one site, {least} in all; there are {there}: "
        "predict without adapting."
    )


# ---- prototypes of the site


def unit_features(features: Tensor) -> Tensor:
    """As they are kept. [N,d] -> [N,d]."""
    return normalize(features.float(), dim=1).half()


def together(model: Model, unit: Tensor, logits: Tensor) -> Tensor:
    """Logits of all images by the site's prototypes. Unit features [N,d], the classifier's logits [N,K] -> [N,K]."""
    stored = model.prototypes
    anchors = model.net.head.weight.detach().cpu() if stored is None else stored["merged"]
    tau = TAU if stored is None else float(stored["tau"])
    center = torch.stack([part.double().sum(0) for part in unit.split(ROWS)]).sum(0) / len(unit)
    members = one_hot(logits.argmax(1), logits.shape[1]) * ops.surest(logits, SUREST)[:, None]

    def centred() -> Iterator[Tensor]:
        return (normalize(part.float() - center.float(), dim=1) for part in unit.split(ROWS))

    sums = torch.stack([own.float().mT @ part for own, part in zip(members.split(ROWS), centred(), strict=True)]).sum(0)
    prototypes = ops.anchored_prototypes(sums, members.sum(0), anchors, ANCHOR)
    distances = torch.cat([ops.cosine_distance(part, prototypes) for part in centred()])
    temperature = model.trust.temperature if model.trust else 1.0
    return -temperature * distances / tau
