"""`proud compare`: where two models disagree, and which images to label to find out who is right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from proud.config import MAX_PIXELS
from proud.data.decode import BadFile, PixelFormat, decode_all, hash_all
from proud.errors import UserError
from proud.files import table_bytes
from proud.held import HeldFolder
from proud.model.load import load_model
from proud.model.predict import Model, find_images
from proud.model.reading import Reading
from proud.model.verdict import compared_model, folder_name, page_of, record_bytes, record_of
from proud.stored import ComparedModel, DrawnImage
from proud.text import some
from proud.trust.calibration import probabilities
from proud.trust.comparison import draw_sample, make_strata

COLUMNS = ["path", "domain", "label", "content"]
MOST_LABELS = 50


@dataclass(frozen=True, eq=False)
class Disagreement:
    """The images of a folder on which two models give different labels, and the sample of them to be labeled."""

    folder: str
    models: tuple[ComparedModel, ComparedModel]
    classes: tuple[str, ...]
    images: int
    files: list[Path]
    """[M] with different labels"""
    contents: list[str]
    first: np.ndarray
    """[M] class numbers"""
    second: np.ndarray
    strata: list[np.ndarray]
    """rows among the M, of each stratum"""
    sample: np.ndarray
    """rows among the M"""
    pixels: PixelFormat
    skipped: tuple[BadFile, ...]

    @property
    def pairs(self) -> list[tuple[str, str, int]]:
        """Labels of both models and number of images, the most frequent first."""
        counts = Counter(zip(self.first.tolist(), self.second.tolist(), strict=True))
        return [(self.classes[a], self.classes[b], count) for (a, b), count in counts.most_common()]

    def write(self, out: Path, page: bytes) -> None:
        """The table to fill in, a page beside it, and the record for the verdict, as one. The models' labels are left
        out of table and page: they would influence the person who labels."""
        rows = [[str(self.files[row]), self.folder, "", self.contents[row]] for row in self.sample.tolist()]
        files = {page_of(out).name: page, record_of(out).name: self.record(), out.name: table_bytes(COLUMNS, rows)}
        with HeldFolder(out.parent) as folder:
            folder.write_together(files)

    def record(self) -> bytes:
        """What the verdict needs beside the labels."""
        return record_bytes(
            {
                "format": "proud-compare-1",
                "folder": self.folder,
                "first": self.models[0],
                "second": self.models[1],
                "classes": list(self.classes),
                "images": self.images,
                "disagreements": len(self.files),
                "strata": list(map(len, self.strata)),
                "drawn": self.drawn(),
            }
        )

    def drawn(self) -> list[DrawnImage]:
        """In the order of the table."""
        strata = {row: number for number, rows in enumerate(self.strata) for row in rows.tolist()}
        return [
            {
                "path": str(self.files[row]),
                "content": self.contents[row],
                "stratum": strata[row],
                "first": self.classes[self.first[row]],
                "second": self.classes[self.second[row]],
            }
            for row in self.sample.tolist()
        ]

    def pictures(self) -> list[tuple[str, np.ndarray]]:
        """Path and pixels [3,S,S] of the drawn images, in the order of the table."""
        files = [self.files[row] for row in self.sample.tolist()]
        images, rows, _ = decode_all(files, self.pixels, skip_bad=True)
        return [(str(files[row]), image) for row, image in zip(rows, images.numpy(), strict=True)]


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
    models = compared_model(first), compared_model(second)
    a.max_pixels = b.max_pixels = max_pixels
    if set(a.classes) != set(b.classes):
        other = sorted(set(a.classes) ^ set(b.classes))
        raise UserError(f"{first} and {second} have different classes ({some(other)}): they cannot be compared.")
    changed = UserError(f"The images in {folder} changed while they were read: try again.")
    files = find_images([folder], follow_links)
    rows, ours, bad = _probabilities(a, files, skip_bad, progress)
    places = [b.classes.index(name) for name in a.classes]
    same, theirs, _ = _probabilities(b, files, skip_bad, progress)
    if rows != same:
        raise changed
    theirs = theirs[:, places]
    one, other_one = ours.argmax(1), theirs.argmax(1)
    apart = (one != other_one).nonzero()[0]
    paths = [files[rows[place]] for place in apart.tolist()]
    contents = hash_all(paths)
    if "" in contents:
        raise changed
    line = np.arange(len(apart))
    mean = (ours[apart] + theirs[apart]) / 2
    expected = mean[line, one[apart]] - mean[line, other_one[apart]]
    order = np.array([int(content[:15], 16) for content in contents], dtype=np.int64)
    strata = make_strata(expected, order)
    count = min(most, len(apart))
    sample = draw_sample(strata, count) if count else np.array([], dtype=np.int64)
    return Disagreement(
        folder_name(folder),
        models,
        a.classes,
        len(rows),
        paths,
        contents,
        one[apart],
        other_one[apart],
        strata,
        sample,
        a.pixels,
        tuple(bad),
    )


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
