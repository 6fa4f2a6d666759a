"""Using a trained model: classify images of any kind."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proud.config import MAX_PIXELS
from proud.data.decode import BadFile, PixelFormat
from proud.data.folder import found_instead, leaving_links, not_read
from proud.data.forms import is_paths, read_form
from proud.data.walk import Walk
from proud.errors import UserError
from proud.files import write_table
from proud.held import PART, HeldFolder
from proud.manifest import replace_together
from proud.model.adapt import Adapted, adapt_site
from proud.model.answers import AnswerOptions, answers, as_arrays, as_rows, assess, assess_site
from proud.model.format import MODEL_FILES, model_files
from proud.model.reading import Reading
from proud.nets.forward import forward_all
from proud.nets.models import ModelSpec, Net
from proud.text import some
from proud.trust.calibration import probabilities
from proud.trust.collapse import FEWEST, NEARLY_ALL
from proud.trust.conformal import Score
from proud.trust.fitted import Trust


class Model:
    """A trained network with all that is needed to use it. `proud.load` reads one; `ProUD.model_` is one.

    Attributes:
        classes: the names of the classes, in the order of the columns of `predict_proba`.
        spec: name and input format of the network.
        config: the settings of the run that trained it.
        trust: calibration, prediction sets and abstention; None without validation images.
        prototypes: those of the classes, if the method has them.
        warnings: what training warned about.
        card: the model card, as Markdown.
        max_pixels: largest image that is read, in millions of pixels.
    """

    def __init__(
        self,
        net: Net,
        spec: ModelSpec,
        classes: tuple[str, ...],
        config: dict[str, Any],
        device: torch.device,
        trust: Trust | None = None,
        prototypes: dict[str, Tensor] | None = None,
        warnings: tuple[str, ...] = (),
        card: str = "",
    ) -> None:
        self.net = net.to(device).eval()
        self.spec, self.classes, self.config, self.device = spec, classes, config, device
        self.trust, self.prototypes, self.warnings, self.card = trust, prototypes, warnings, card
        self.max_pixels = MAX_PIXELS

    @property
    def pixels(self) -> PixelFormat:
        """The format of the stored images that `outputs` takes."""
        return replace(self.spec.pixels, max_pixels=self.max_pixels)

    def logits(self, images: Tensor) -> Tensor:
        """Logits [N, K] of stored uint8 images [N, 3, S, S]."""
        return self.outputs(images)[1]

    def outputs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features [N, d] and logits [N, K] of stored uint8 images [N, 3, S, S]."""
        features, logits = forward_all(self.net, images, self.spec, self.device, "fp32")
        return features.cpu(), logits.cpu()

    def predict_proba(self, images: Any, skip_bad: bool = False, adapt: bool = False) -> np.ndarray:
        """The probability of each class.

        Args:
            images: a folder; files; a CSV file or DataFrame; uint8 arrays or PIL images; a dataset. Those of a folder
                are sorted by path.
            skip_bad: skip unreadable files with a warning; `predict_table` names the images of the answers.
            adapt: the images are those of one site; classify them together.

        Returns:
            Probabilities [N, K]; calibrated if there were enough validation images (`trust.calibration()` says so).

        Example:
            >>> proud.load("mine").predict_proba("new_images").shape
            (4, 2)
        """
        temperature = self.trust.temperature if self.trust else 1.0
        if adapt:
            return probabilities(self.adapted(sources_of(images), skip_bad).logits, temperature).float().numpy()
        pieces = self.read_pieces(sources_of(images), skip_bad)
        return torch.cat([probabilities(self.logits(pixels), temperature) for _, pixels in pieces]).float().numpy()

    def predict(self, images: Any, skip_bad: bool = False, adapt: bool = False) -> np.ndarray:
        """The class of each image.

        Args:
            images: as in `predict_proba`.
            skip_bad: as in `predict_proba`.
            adapt: as in `predict_proba`.

        Returns:
            Names of classes [N].

        Example:
            >>> proud.load("mine").predict("new_images")
            array(['five', 'five', 'one', 'one'], dtype='<U4')
        """
        return np.array(self.classes)[self.predict_proba(images, skip_bad, adapt).argmax(1)]

    def predict_table(
        self,
        images: Any,
        skip_bad: bool = False,
        coverage: float = 0.9,
        risk: float = 0.05,
        sets: Score = "lac",
        adapt: bool = False,
    ) -> dict[str, np.ndarray]:
        """All answers about each image, in the order of `predict`: the columns of predictions.csv.

        Args:
            images: as in `predict_proba`.
            skip_bad: as in `predict_proba`.
            coverage: share of prediction sets that contain the true class, on new images of the labeled domain.
            risk: abstain so that at most this share of the answers is wrong, on new images of the labeled domain.
            sets: kind of prediction sets: the smallest ("lac"), or adaptive to each image ("aps").
            adapt: as in `predict_proba`.

        Returns:
            The columns `path` (for images in memory, `row`), `label`, `confidence` and, if the model has them, `set`
            (a tuple of labels by falling probability) and `abstain` (True or False). With `adapt`, `plain` is the
            label without it.

        Example:
            >>> list(proud.load("mine").predict_table("new_images"))
            ['path', 'label', 'confidence', 'set', 'abstain']
        """
        options = AnswerOptions(coverage, risk, sets)
        return answer_table(self, images, np.array(self.classes), options, skip_bad, adapt)

    def adapted(self, sources: list[Any], skip_bad: bool) -> Adapted:
        """Answers for the images of one site together; a warning says how many labels changed."""
        reading = Reading(sources, self.pixels, skip_bad, remedy="skip_bad=True (predict_table names the rest)")
        found = adapt_site(self, reading)
        if reading.bad:
            warn_about_skipped([file.path for file in reading.bad])
        warnings.warn(found.notice, stacklevel=3)
        return found

    def read_pieces(self, sources: list[Any], skip_bad: bool) -> Iterator[tuple[list[int], Tensor]]:
        """Rows and stored pixels of the images, piece by piece."""
        reading = Reading(sources, self.pixels, skip_bad, remedy="skip_bad=True (predict_table names the rest)")
        yield from reading.pieces()
        if reading.bad:
            warn_about_skipped([file.path for file in reading.bad])

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write the model to a folder of its own, for `proud.load` and `proud predict`.

        Args:
            folder: a new folder.
            overwrite: replace a model in that folder; other files are never touched.

        Raises:
            UserError: the folder holds something else, or a model that is not to be replaced.

        Example:
            >>> proud.load("runs/x").save("elsewhere")
        """
        folder = Path(folder)
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if {name for name in there if not PART.fullmatch(name)} - MODEL_FILES:
            raise UserError(f"{folder} has other files: save the model in a folder of its own.")
        if there and not overwrite:
            raise UserError(f"{folder} holds a model: choose another folder, or replace it with overwrite=True.")
        files = model_files(
            self.net.state_dict(),
            self.spec,
            self.classes,
            self.config,
            trust=self.trust.as_json() if self.trust else None,
            prototypes=self.prototypes,
            warnings=self.warnings,
            card=self.card,
        )
        with HeldFolder(folder) as held:
            replace_together(held, files)
            held.remove(*(MODEL_FILES - files.keys()))


def warn_about_skipped(paths: Sequence[str]) -> None:
    images = "1 unreadable image is" if len(paths) == 1 else f"{len(paths)} unreadable images are"
    warnings.warn(f"{images} skipped: {some(paths)}", stacklevel=2)


def one_answer(rows: list[dict[str, Any]]) -> str:
    """A warning if nearly all of many images got one label: at a new site the model has then usually failed."""
    label, count = Counter(row["label"] for row in rows).most_common(1)[0]
    if len(rows) < 2 * FEWEST or count < NEARLY_ALL * len(rows):
        return ""
    return f"{count} of {len(rows)} images are classified as {label}: unless that is true, the model fails on them."


# ---- which images


def sources_of(images: Any) -> list[Any]:
    """Files, or the pixels of each image."""
    if isinstance(images, str | Path) and Path(images).suffix.lower() != ".csv":
        return list(find_images(images))
    if is_paths(images):
        return list(find_images([*images]))
    return read_form("images", images).sources()


def find_images(where: str | Path | Sequence[str | Path], follow_links: bool = False) -> list[Path]:
    """Image files: those named, and those anywhere below the named folders, sorted by path."""
    found: list[Path] = []
    notices: list[str] = []
    others: Counter[str] = Counter()
    links: list[str] = []
    places = [Path(where)] if isinstance(where, str | Path) else [Path(path) for path in where]
    for path in places:
        if path.is_dir():
            walk = Walk(path, follow_links)
            images = sorted(walk.images(path))
            away = leaving_links(walk)
            notices.append(not_read(str(path), len(images), walk.others, away))
            found += images
            others += walk.others
            links += away
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder.")
    if not found:
        raise UserError(f"No images found in {', '.join(str(path) for path in places)}{found_instead(others, links)}.")
    for text in filter(None, notices):
        warnings.warn(text, stacklevel=2)
    return list(dict.fromkeys(found))


# ---- tables


def predict_files(
    model: Model, files: list[Path], options: AnswerOptions, *, skip_bad: bool = False, progress: bool = False
) -> tuple[list[dict[str, Any]], list[BadFile]]:
    """One row per readable image: path and what `answers` gives."""
    rows: list[dict[str, Any]] = []
    reading = Reading(files, model.pixels, skip_bad, progress)
    for places, images in reading.pieces():
        for place, answer in zip(places, answers(model, images, options), strict=True):
            rows.append({"path": str(files[place])} | answer)
    return rows, reading.bad


def predict_site(
    model: Model, files: list[Path], options: AnswerOptions, *, skip_bad: bool = False, progress: bool = False
) -> tuple[list[dict[str, Any]], list[BadFile], str]:
    """`predict_files` for the images of one site together, and how far the answers are from the plain ones."""
    reading = Reading(files, model.pixels, skip_bad, progress)
    found = adapt_site(model, reading)
    answered = as_rows(model, assess_site(model, found, options))
    rows = [{"path": str(files[place])} | answer for place, answer in zip(found.rows, answered, strict=True)]
    return rows, reading.bad, found.notice


def answer_table(
    model: Model, images: Any, names: np.ndarray, options: AnswerOptions, skip_bad: bool = False, adapt: bool = False
) -> dict[str, np.ndarray]:
    """`Model.predict_table`, with these names for the classes."""
    sources = sources_of(images)
    rows: list[int] = []
    found: dict[str, list[Any]] = {}
    if adapt:
        together = model.adapted(sources, skip_bad)
        rows, found = together.rows, assess_site(model, together, options)
    for places, pixels in () if adapt else model.read_pieces(sources, skip_bad):
        rows += places
        for column, values in assess(model, pixels, options).items():
            found.setdefault(column, []).extend(values)
    if sources and isinstance(sources[0], Path):
        return {"path": np.array([str(sources[row]) for row in rows])} | as_arrays(found, names)
    return {"row": np.array(rows, dtype=np.int64)} | as_arrays(found, names)


def write_predictions(path: Path, rows: list[dict[str, Any]], classes: Sequence[str]) -> None:
    """To a file, or to stdout (-). Probabilities, if the rows have them, become one column p(CLASS) per class."""
    columns = [column for column in rows[0] if column != "probabilities"]
    more = [f"p({name})" for name in classes] if "probabilities" in rows[0] else []

    def cells(row: dict[str, Any]) -> list[Any]:
        # enough digits to keep the order of very likely and very unlikely classes
        return [*(row[column] for column in columns), *(f"{share:.9g}" for share in row.get("probabilities", ()))]

    write_table(path, [*columns, *more], map(cells, rows))


def write_skipped(path: Path, bad: Sequence[BadFile]) -> None:
    """A table of its own, because every row of the predictions has a label. That of an earlier run is removed."""
    if bad:
        write_table(path, ["path", "reason"], [list(file) for file in bad])
    else:
        path.unlink(missing_ok=True)
