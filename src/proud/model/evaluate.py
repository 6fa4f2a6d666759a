"""Measuring a saved model on a labeled domain."""

from __future__ import annotations

import shlex
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proud.config import MAX_PIXELS, NOTHING
from proud.data.benchmarks import open_catalog
from proud.data.catalog import Catalog, DomainFiles
from proud.data.decode import BadFile
from proud.data.folder import refuse_splits, scan_domain
from proud.data.roles import sort_classes, with_images
from proud.errors import UserError
from proud.files import is_stdout, json_bytes, write_json
from proud.machine import environment
from proud.model.adapt import adapt_site
from proud.model.answers import AnswerOptions
from proud.model.load import load_model
from proud.model.predict import Model
from proud.model.reading import Reading
from proud.model.seen import TrainedOn, is_own_data, stored_task, trained_on
from proud.printing import DataOutput
from proud.text import nfc, some
from proud.trust.calibration import probabilities
from proud.trust.collapse import missing_classes
from proud.trust.fitted import measure
from proud.trust.intervals import Interval, accuracy_interval, paired_interval
from proud.trust.scores import Scores, scores


@dataclass(frozen=True)
class ClassCount:
    """How many images of a class there are, and how many are classified correctly."""

    name: str
    images: int
    right: int

    @property
    def accuracy(self) -> float | None:
        return self.right / self.images if self.images else None

    @property
    def interval(self) -> Interval | None:
        return accuracy_interval(self.right / max(self.images, 1), self.images)


@dataclass(frozen=True)
class Comparison:
    """Another model on the same images; the difference is the first model's accuracy minus its own."""

    model: str
    accuracy: float
    difference: Interval


@dataclass(frozen=True)
class Evaluation:
    """All numbers of one domain, and what they were measured on."""

    model: str
    data: str
    root: str
    domain: str
    images: int
    accuracy: float
    per_class: tuple[ClassCount, ...]
    scores: Scores
    options: AnswerOptions
    trust: dict[str, Any] | None
    """calibration, prediction sets and abstention; None for a model without validation images"""
    trained_on: TrainedOn
    skipped: tuple[BadFile, ...]
    environment: dict[str, Any]
    warning: str = ""
    """if the predictions lack classes that the labeled domain has"""
    against: Comparison | None = None
    plain: Comparison | None = None
    """of adapted answers: the model on each image alone"""

    @property
    def interval(self) -> Interval | None:
        return accuracy_interval(self.accuracy, self.images)

    def as_json(self) -> dict[str, Any]:
        """As in the file of `proud evaluate --out`, with the command that made it."""
        asked = {name: getattr(self.options, name) for name in ("coverage", "risk", "sets")}
        classes = [
            {"class": each.name, "images": each.images, "right": each.right, "accuracy": each.accuracy}
            | {"interval": ends(each.interval)}
            for each in self.per_class
        ]
        plain = {name: getattr(self, name) for name in ("model", "data", "root", "domain", "images", "accuracy")}
        return plain | {
            "interval": ends(self.interval),
            "scores": self.scores.as_json(),
            "per_class": classes,
            "against": None if self.against is None else asdict(self.against),
            "plain": None if self.plain is None else asdict(self.plain),
            "warning": self.warning,
            "asked": asked,
            "trust": self.trust,
            "trained_on": self.trained_on.labeled,
            "trained_on_without_labels": self.trained_on.unlabeled,
            "known": self.trained_on.known,
            "copies": self.trained_on.copies,
            "left_out": [file._asdict() for file in self.skipped],
            **self.environment,
            "command": shlex.join(["proud", *sys.argv[1:]]),
        }

    def write(self, path: Path) -> None:
        """To a file, or to stdout if its name is -."""
        if is_stdout(path):
            DataOutput().write(json_bytes(self.as_json(), indent=1).decode() + "\n")
        else:
            write_json(path, self.as_json())


def ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def evaluate_domain(
    folder: Path,
    domain: str,
    *,
    data: str = "",
    root: str = "",
    options: AnswerOptions | None = None,
    skip_bad: bool = False,
    follow_links: bool = False,
    max_pixels: int = MAX_PIXELS,
    device: str = "auto",
    progress: bool = False,
    against: Path | None = None,
    adapt: bool = False,
) -> Evaluation:
    """Measure the model in a folder on one domain of its own data, or of others; optionally beside another model.

    Without `domain`, it is the test domain of the run or, with `data`, that folder of class folders. With `adapt`, the
    images are classified together, and `plain` is what the model gets right on each of them alone.
    """
    options, model = options or AnswerOptions(), load_model(folder, device)
    own = not data
    data, root = find_data(model.config, data, root)
    if own and not domain and (held_out := str(model.config.get("test", NOTHING))) != NOTHING:
        domain = held_out
    model.max_pixels = max_pixels
    catalog, domain = find_site(model, data, root, domain, follow_links)
    other = None if against is None else load_model(against, device)
    files, labels = labeled_files(model, catalog, domain)
    reading = Reading(catalog.sources(files), model.pixels, skip_bad, progress)
    together = adapt_site(model, reading) if adapt else None
    rows, logits = read_logits(model, reading) if together is None else (together.rows, together.logits)
    labels = labels[rows]
    right = logits.argmax(1) == labels
    own = own or is_own_data(model.config, data, root)
    return Evaluation(
        model=str(folder),
        data=data,
        root=root,
        domain=files.name,
        images=len(right),
        accuracy=right.float().mean().item(),
        per_class=tuple(
            ClassCount(name, int((labels == k).sum()), int(((labels == k) & right).sum()))
            for k, name in enumerate(model.classes)
        ),
        scores=scores(probabilities(logits, model.trust.temperature if model.trust else 1.0), labels, model.classes),
        options=options,
        trust=measured_trust(model, logits, labels, options),
        trained_on=trained_on(folder, model.config, catalog, files, own),
        skipped=tuple(reading.bad),
        environment=environment(model.device),
        warning=missing_at(folder, model, logits, files.name),
        plain=None if together is None else beside("plain", right, together.plain.argmax(1) == labels),
        against=None if other is None else compare(str(against), other, catalog, files, rows, right, progress),
    )


def read_logits(model: Model, reading: Reading) -> tuple[list[int], Tensor]:
    """The rows of readable images, and their logits."""
    pieces = [(rows, model.logits(images)) for rows, images in reading.pieces()]
    return [row for rows, _ in pieces for row in rows], torch.cat([found for _, found in pieces])


def compare(
    name: str, other: Model, catalog: Catalog, files: DomainFiles, rows: list[int], right: Tensor, progress: bool
) -> Comparison:
    """Another model on these rows of a domain, of which the first gets `right` right. [N] bool."""
    _, labels = labeled_files(other, catalog, files.name)
    sources = catalog.sources(files)
    _, logits = read_logits(other, Reading([sources[row] for row in rows], other.pixels, False, progress))
    return beside(name, right, logits.argmax(1) == labels[rows])


def beside(name: str, right: Tensor, theirs: Tensor) -> Comparison:
    """What two models get right on the same images. [N] bool each."""
    difference = paired_interval(int((right & ~theirs).sum()), int((theirs & ~right).sum()), len(right))
    if difference is None:
        raise UserError("No image can be read: there is nothing to compare.")
    return Comparison(name, theirs.float().mean().item(), difference)


def missing_at(folder: Path, model: Model, logits: Tensor, name: str) -> str:
    """A warning if predictions lack classes of the labeled domain; nothing if the run's description is gone."""
    task = stored_task(folder)
    for domain in task["domains"].values() if task else ():
        if domain["role"] == "labeled" and "per_class" in domain:
            counts = torch.tensor([domain["per_class"].get(label, 0) for label in model.classes])
            labeled = torch.arange(len(counts)).repeat_interleave(counts)
            return missing_classes(logits, labeled, model.classes, name)
    return ""


def measured_trust(model: Model, logits: Tensor, labels: Tensor, options: AnswerOptions) -> dict[str, Any] | None:
    if model.trust is None:
        return None
    found = measure(model.trust, logits, labels, options.coverage, options.risk, options.sets)
    about = {"temperature": model.trust.temperature, "validation_images": model.trust.images}
    return found | about | {"calibration": model.trust.calibration()}


# ---- which images


def find_data(config: dict[str, Any], data: str, root: str) -> tuple[str, str]:
    """`--data` and `--root` as given or, by default, those of the run."""
    if data:
        return data, root
    own, own_root = str(config.get("data", "")), str(config.get("root", ""))
    if own in ("", "python"):
        raise UserError("The run was trained on data passed from Python: name the images with --data.")
    if own != "embedded" and not root and not Path(own_root or own).exists():
        option = "--root" if own_root else "--data"
        raise UserError(
            f"The run was trained with {option} {own_root or own}, which does not exist here: name the place of its "
            f"images with {option}."
        )
    return own, root or own_root


def find_site(model: Model, data: str, root: str, domain: str, follow_links: bool) -> tuple[Catalog, str]:
    """The domain to measure on, and where it is. A folder of class folders is one site under the folder's name."""
    catalog = open_catalog(data, root, follow_links)
    names = [name for name, files in catalog.domains.items() if files.entries]
    own_name = nfc(Path(data).absolute().name)
    if catalog.root is not None and domain in ("", own_name) and set(names) & set(model.classes):
        files, warning = scan_domain(own_name, Path(data), follow_links)
        if warning:
            warnings.warn(warning, stacklevel=3)
        return Catalog(own_name, None, {own_name: files}), own_name
    if not domain and len(names) > 1:
        raise UserError(
            f"Name the domain to measure on: --domain SITE. The domains of {data} are: {', '.join(names)}. None of "
            f"these folders is a class of the model ({some(model.classes)}), or {data} would be one site."
        )
    return catalog, domain or names[0]


def labeled_files(model: Model, catalog: Catalog, name: str) -> tuple[DomainFiles, Tensor]:
    """One domain's files, and their labels as class numbers of the model. [N]."""
    domain = with_images(catalog, name)
    refuse_splits(domain)
    numbers = {label: k for k, label in enumerate(model.classes)}
    if without := domain.unlabeled_entries:
        raise UserError(
            f"{len(without)} images of {domain.name!r} have no label, so accuracy cannot be measured on them: "
            f"{some(without)}. Class folders name the labels; `proud predict` needs none."
        )
    unknown = sort_classes({entry.label for entry in domain.entries if entry.label and entry.label not in numbers})
    if unknown:
        raise UserError(
            f"Images of {domain.name!r} have labels that are unknown to the model: {some(unknown)}. "
            f"Its classes are: {some(model.classes)}."
        )
    if domain.name in catalog.notices:
        warnings.warn(catalog.notices[domain.name], stacklevel=2)
    return domain, torch.tensor([numbers[str(entry.label)] for entry in domain.entries])
