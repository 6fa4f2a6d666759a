"""Using a trained model: load it, and classify images of any kind."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proud.data.arrays import channels_last
from proud.data.catalog import found_instead, leaving_links, not_read
from proud.data.decode import BadFile, stored_side
from proud.data.walk import Walk
from proud.model.answers import PROTOTYPES, Asked, answers, as_arrays, assess, read_reliability
from proud.model.load import read_model, read_warnings
from proud.model.reading import Reading
from proud.errors import UserError
from proud.training.evaluator import forward_all
from proud.data.python_inputs import tell_left_out
from proud.nets.models import ModelSpec, Net
from proud.files import replacing, write_json, write_tensors
from proud.machine import choose_device
from proud.training.records import write_table
from proud.training.run import MODEL_FORMAT
from proud.trust.calibration import probabilities
from proud.trust.collapse import FEWEST, NEARLY_ALL
from proud.trust.conformal import Score
from proud.trust.fitted import Trust

MODEL_FILES = {"model.safetensors", "model.json", PROTOTYPES}


class Model:
    """A trained network with its classes and input format and, as far as its training left them, what it knows about
    its own reliability (`trust`) and the prototypes of its classes."""

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
    ) -> None:
        self.net = net.to(device).eval()
        self.spec, self.classes, self.config, self.device = spec, classes, config, device
        self.trust, self.prototypes, self.warnings = trust, prototypes, warnings

    def logits(self, images: Tensor) -> Tensor:
        """Logits [N, K] of stored uint8 images [N, 3, S, S]."""
        return self.outputs(images)[1]

    def outputs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features [N, d] and logits [N, K] of stored uint8 images [N, 3, S, S]."""
        features, logits = forward_all(self.net, images, self.spec, self.device, "fp32")
        return features.cpu(), logits.cpu()

    def predict_proba(self, images: Any, skip_bad: bool = False) -> np.ndarray:
        """Class probabilities [N, K] of uint8 arrays, a list of images (arrays or PIL's, of any sizes), files, or
        all images of a folder (in `find_images` order).

        They are calibrated if the model was trained with enough validation images (see `trust.calibration()`). With
        `skip_bad`, files that cannot be read are left out with a warning; `predict_table` says which images the
        answers belong to.
        """
        temperature = self.trust.temperature if self.trust else 1.0
        pieces = self.read_pieces(sources_of(images), skip_bad)
        return torch.cat([probabilities(self.logits(pixels), temperature) for _, pixels in pieces]).float().numpy()

    def predict(self, images: Any, skip_bad: bool = False) -> np.ndarray:
        """Class names [N]."""
        return np.array(self.classes)[self.predict_proba(images, skip_bad).argmax(1)]

    def predict_table(
        self, images: Any, skip_bad: bool = False, coverage: float = 0.9, risk: float = 0.05, sets: Score = "lac"
    ) -> dict[str, np.ndarray]:
        """The columns of predictions.csv, in the order of `predict`: `path` (for arrays, `row`), `label`, `confidence`
        and, as far as the model has them, `set` (a tuple of labels, the likeliest first), `abstain` (True or False)
        and `uncertainty`."""
        return answer_table(self, images, np.array(self.classes), Asked(coverage, risk, sets), skip_bad)

    def read_pieces(self, sources: list[Any], skip_bad: bool) -> Iterator[tuple[list[int], Tensor]]:
        """Rows and stored pixels of the images, piece by piece."""
        remedy = "skip_bad=True (predict_table says which images are left)"
        reading = Reading(sources, stored_side(self.spec.size), skip_bad, remedy=remedy, square=self.spec.square)
        yield from reading.pieces()
        tell_left_out([file.path for file in reading.bad])

    def save(self, folder: Path | str, overwrite: bool = False) -> None:
        """Write `model.safetensors` and `model.json`, which `proud.load` and `proud predict` read.

        A folder that holds a saved model is written anew with `overwrite`; one that holds anything else never is.
        """
        folder = Path(folder)
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        if there - MODEL_FILES:
            raise UserError(f"{folder} holds other files: save the model in a folder of its own.")
        if there and not overwrite:
            raise UserError(f"{folder} holds a model: choose another folder, or replace it with overwrite=True.")
        (folder / PROTOTYPES).unlink(missing_ok=True)
        with replacing(folder / "model.safetensors") as part:
            write_tensors(part, self.net.state_dict(), MODEL_FORMAT)
        about = {"classes": list(self.classes), "spec": asdict(self.spec), "config": self.config}
        if self.prototypes:
            with replacing(folder / PROTOTYPES) as part:
                write_tensors(part, self.prototypes, "proud-prototypes-1")
        about |= {"warnings": list(self.warnings)} if self.warnings else {}
        trust = {"trust": self.trust.as_json()} if self.trust else {}
        write_json(folder / "model.json", {"format": MODEL_FORMAT} | about | trust)


def load_model(folder: Path | str, device: str = "auto") -> Model:
    """A model from a run's folder: `model.safetensors` and `model.json`; nothing in them is ever executed."""
    folder = Path(folder)
    if folder.is_file():
        raise UserError(f"{folder} is a file: a model is a run's folder, with model.safetensors and model.json.")
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    if not (folder / "model.json").is_file():
        unfinished = (folder / "run.json").is_file()
        hint = "its training has not finished (go on with --resume)" if unfinished else "it is not a run's folder"
        raise UserError(f"{folder} holds no model.json: {hint}.")
    net, spec, classes, config = read_model(folder)
    trust, prototypes = read_reliability(folder, spec.classes, net.num_features)
    return Model(net, spec, classes, config, choose_device(device), trust, prototypes, read_warnings(folder))


def same_answer(rows: list[dict[str, Any]]) -> str:
    """A sentence if nearly all of many images got one label: at a new site that often means that the model fails."""
    label, count = Counter(row["label"] for row in rows).most_common(1)[0]
    if len(rows) < 2 * FEWEST or count < NEARLY_ALL * len(rows):
        return ""
    return f"{count} of {len(rows)} images are called {label}: unless that is so, the model is of no use for them."


def sources_of(images: Any) -> list[Any]:
    """Files, or the pixels of each image."""
    return find_images(images) if is_files(images) else list(channels_last("images", images))


def is_files(images: Any) -> bool:
    """A path or a list of paths, as opposed to pixels."""
    if isinstance(images, list | tuple):
        return bool(images) and all(isinstance(path, str | Path) for path in images)
    return isinstance(images, str | Path)


def find_images(where: str | Path | Sequence[str | Path]) -> list[Path]:
    """Image files: those named, and those anywhere below the named folders, sorted by path."""
    found: list[Path] = []
    told: list[str] = []
    others: Counter[str] = Counter()
    links: list[str] = []
    places = [Path(where)] if isinstance(where, str | Path) else [Path(path) for path in where]
    for path in places:
        if path.is_dir():
            walk = Walk(path)
            images = sorted(walk.images(path))
            away = leaving_links(walk)
            told.append(not_read(str(path), len(images), walk.others, away))
            found += images
            others += walk.others
            links += away
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder.")
    if not found:
        raise UserError(f"No images found in {', '.join(str(path) for path in places)}{found_instead(others, links)}.")
    for text in filter(None, told):
        warnings.warn(text, stacklevel=2)
    return list(dict.fromkeys(found))


def predict_files(
    model: Model,
    files: list[Path],
    *,
    asked: Asked | None = None,
    skip_bad: bool = False,
    progress: bool = False,
) -> tuple[list[dict[str, Any]], list[BadFile]]:
    """One row per readable image: path, label, confidence and, if the model has them, what `answers` adds."""
    asked = asked or Asked()
    rows: list[dict[str, Any]] = []
    reading = Reading(files, stored_side(model.spec.size), skip_bad, progress, square=model.spec.square)
    for places, images in reading.pieces():
        for place, answer in zip(places, answers(model, images, asked), strict=True):
            rows.append({"path": str(files[place])} | answer)
    return rows, reading.bad


def answer_table(
    model: Model, images: Any, names: np.ndarray, asked: Asked, skip_bad: bool = False
) -> dict[str, np.ndarray]:
    """`Model.predict_table`, with these names for the classes."""
    sources = sources_of(images)
    rows: list[int] = []
    found: dict[str, list[Any]] = {}
    for places, pixels in model.read_pieces(sources, skip_bad):
        rows += places
        for column, values in assess(model, pixels, asked).items():
            found.setdefault(column, []).extend(values)
    if is_files(images):
        return {"path": np.array([str(sources[row]) for row in rows])} | as_arrays(found, names)
    return {"row": np.array(rows, dtype=np.int64)} | as_arrays(found, names)


def write_predictions(path: Path, rows: list[dict[str, Any]], classes: Sequence[str]) -> None:
    """Probabilities, where the rows have them, become one column p(CLASS) for each class."""
    columns = [column for column in rows[0] if column != "probabilities"]
    more = [f"p({name})" for name in classes] if "probabilities" in rows[0] else []

    def cells(row: dict[str, Any]) -> list[Any]:
        # so many digits that the order of sure and of unlikely answers is kept
        return [*(row[column] for column in columns), *(f"{share:.9g}" for share in row.get("probabilities", ()))]

    write_table(path, [*columns, *more], map(cells, rows))


def write_left_out(path: Path, bad: Sequence[BadFile]) -> None:
    """A table of its own: every row of the predictions has a label. That of an earlier run goes."""
    if bad:
        write_table(path, ["path", "reason"], [list(file) for file in bad])
    else:
        path.unlink(missing_ok=True)
