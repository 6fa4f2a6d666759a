"""`proud compare`: where two models disagree, which images to label to find out who is right, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from proud.config import MAX_PIXELS
from proud.data.csv_table import LabelRow, read_labels
from proud.data.decode import BadFile, PixelFormat, decode_all, hash_all
from proud.errors import UserError
from proud.files import write_table
from proud.model.load import load_model
from proud.model.predict import Model, find_images
from proud.model.reading import Reading
from proud.text import listed, some
from proud.trust.calibration import probabilities
from proud.trust.comparison import difference_interval, draw_sample
from proud.trust.intervals import Interval

COLUMNS = ["path", "domain", "label", "content"]
MOST_LABELS = 50
FEWEST_LABELS = 5


@dataclass(frozen=True, eq=False)
class Disagreement:
    """The images of a folder on which two models give different labels, and the sample of them to be labeled."""

    folder: str
    classes: tuple[str, ...]
    images: int
    files: list[Path]
    """[M] with different labels"""
    contents: list[str]
    first: np.ndarray
    """[M] class numbers"""
    second: np.ndarray
    sample: np.ndarray
    """rows among the M"""
    pixels: PixelFormat
    skipped: tuple[BadFile, ...]

    @property
    def pairs(self) -> list[tuple[str, str, int]]:
        """Labels of both models and number of images, the most frequent first."""
        counts = Counter(zip(self.first.tolist(), self.second.tolist(), strict=True))
        return [(self.classes[a], self.classes[b], count) for (a, b), count in counts.most_common()]

    def write(self, path: Path) -> None:
        """The table to fill in. The models' labels are left out: they would influence the person who labels."""
        rows = [[str(self.files[row]), self.folder, "", self.contents[row]] for row in self.sample.tolist()]
        write_table(path, COLUMNS, rows)

    def pictures(self) -> list[tuple[str, np.ndarray]]:
        """Path and pixels [3,S,S] of the drawn images, in the order of the table."""
        files = [self.files[row] for row in self.sample.tolist()]
        images, rows, _ = decode_all(files, self.pixels, skip_bad=True)
        return [(str(files[row]), image) for row, image in zip(rows, images.numpy(), strict=True)]


@dataclass(frozen=True)
class Verdict:
    """What the labels say about the accuracy of the first model minus that of the second."""

    difference: Interval
    labels: int
    first: int
    """labeled images on which the first model is right"""
    second: int
    drawn: int

    @property
    def better(self) -> str:
        """`first`, `second`, or empty if the interval contains 0."""
        return "first" if self.difference.low > 0 else "second" if self.difference.high < 0 else ""


def disagreement(
    first: Path,
    second: Path,
    folder: Path,
    *,
    most: int = MOST_LABELS,
    skip_bad: bool = False,
    follow_links: bool = False,
    max_pixels: int = MAX_PIXELS,
    device: str = "auto",
    progress: bool = False,
) -> Disagreement:
    """Both models on all images of the folder. The sample depends on the images and the models alone."""
    a, b = load_model(first, device), load_model(second, device)
    a.max_pixels = b.max_pixels = max_pixels
    if set(a.classes) != set(b.classes):
        other = sorted(set(a.classes) ^ set(b.classes))
        raise UserError(f"{first} and {second} have different classes ({some(other)}): they cannot be compared.")
    files = find_images([folder], follow_links)
    rows, ours, bad = _probabilities(a, files, skip_bad, progress)
    places = [b.classes.index(name) for name in a.classes]
    same, theirs, _ = _probabilities(b, files, skip_bad, progress)
    if rows != same:
        raise UserError(f"The images in {folder} changed while they were read: try again.")
    theirs = theirs[:, places]
    one, other_one = ours.argmax(1), theirs.argmax(1)
    apart = (one != other_one).nonzero()[0]
    paths = [files[rows[place]] for place in apart.tolist()]
    contents = hash_all(paths)
    line = np.arange(len(apart))
    mean = (ours[apart] + theirs[apart]) / 2
    expected = mean[line, one[apart]] - mean[line, other_one[apart]]
    order = np.array([int(content[:15], 16) for content in contents], dtype=np.int64)
    count = min(most, len(apart))
    sample = draw_sample(expected, order, count) if count else np.array([], dtype=np.int64)
    return Disagreement(
        folder.name, a.classes, len(rows), paths, contents, one[apart], other_one[apart], sample, a.pixels, tuple(bad)
    )


def filled_in(table: Path, classes: Sequence[str]) -> list[LabelRow]:
    """The rows with a label, of which every one must be a class."""
    rows = read_labels(table)
    unknown = [
        f"line {row.line}: the class {row.label!r} is unknown; the models have: {some(classes)}"
        for row in rows
        if row.label not in classes
    ]
    if unknown:
        raise UserError(listed(unknown, table))
    return rows


def verdict(found: Disagreement, table: Path) -> Verdict:
    """From the filled-in table. Only the drawn images count: others would have been picked by hand."""
    number = {name: k for k, name in enumerate(found.classes)}
    drawn = {found.contents[row]: row for row in found.sample.tolist()}
    paths = {str(found.files[row]): content for content, row in drawn.items()}
    labels: dict[str, LabelRow] = {}
    problems, strangers = [], 0
    rows = filled_in(table, found.classes)
    for row in rows:
        content = row.content or paths.get(row.path, "")
        if content not in drawn:
            problems.append(f"line {row.line}: {row.path} was not drawn from these models and images")
            strangers += 1
        elif content in labels:
            problems.append(f"line {row.line}: {row.path} is listed before, in line {labels[content].line}")
        labels.setdefault(content, row)
    if strangers == len(rows):
        raise UserError(
            f"No image of {table} was drawn from these models and images: name those that the table was written for."
        )
    if problems:
        raise UserError(listed(problems, table))
    if len(labels) < min(FEWEST_LABELS, len(drawn)):
        raise UserError(f"{table} has {len(labels)} labels; at least {min(FEWEST_LABELS, len(drawn))} are needed.")
    truth = {drawn[content]: number[row.label] for content, row in labels.items()}
    first = sum(int(found.first[row]) == label for row, label in truth.items())
    second = sum(int(found.second[row]) == label for row, label in truth.items())
    difference = difference_interval(first, second, len(truth), len(found.files), found.images)
    return Verdict(difference, len(truth), first, second, len(drawn))


def _probabilities(
    model: Model, files: list[Path], skip_bad: bool, progress: bool
) -> tuple[list[int], np.ndarray, list[BadFile]]:
    """Rows of the readable files, and their calibrated class probabilities [N,K]."""
    reading = Reading(files, model.pixels, skip_bad, progress)
    temperature = model.trust.temperature if model.trust else 1.0
    rows: list[int] = []
    found = []
    for places, images in reading.pieces():
        rows += places
        found.append(probabilities(model.logits(images), temperature).float())
    return rows, torch.cat(found).numpy(), reading.bad
