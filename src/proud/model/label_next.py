"""`proud label-next`: the images of each unlabeled site whose labels would help a run most, as a table to fill in."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from proud import ops
from proud.data.task import assemble
from proud.data.benchmarks import catalog_for
from proud.data.catalog import some
from proud.data.types import Task, UnlabeledDomain
from proud.data.labels import read_labels, state_labels
from proud.model.evaluate import find_data
from proud.model.predict import Model, load_model
from proud.errors import UserError
from proud.methods import METHODS, method_class
from proud.training.run_folder import other_images, read_run
from proud.training.records import write_table
from proud.trust.calibration import probabilities
from proud.trust.fitted import to_prototypes
from proud.trust.label_next import choose_images

if TYPE_CHECKING:
    from proud.cli.label_next import LabelNextArguments

COLUMNS = ["path", "domain", "label", "guess", "uncertainty", "content"]


def suggest(arguments: LabelNextArguments) -> tuple[dict[str, int], str]:
    """Write the table; returns the number of images per site, and the flags of a training that can use the labels."""
    if arguments.k < 1:
        raise UserError(f"--k must be at least 1, got {arguments.k}.")
    model = load_model(arguments.run, arguments.device)
    check_out(arguments.out, arguments.overwrite, str(model.config.get("labels", "")))
    task = read_task(model, arguments.run, arguments.data, arguments.root, arguments.skip_bad)
    rows, counts = told_rows(model.config), {}
    for domain in task.training.unlabeled:
        paths = task.evaluation.audits[domain.name].paths
        features, guess, doubt = judge(model, domain, task.training.labeled.labels)
        chosen = choose_images(features, doubt, arguments.k, domain.known).tolist()
        for row in chosen:
            named = model.classes[int(guess[row])]
            rows.append([paths[row], domain.name, "", named, f"{doubt[row]:.4f}", domain.ids[row]])
        counts[domain.name] = len(chosen)
    write_table(arguments.out, COLUMNS, rows)
    return counts, usable_method(str(model.config.get("method", "")))


def check_out(out: Path, overwrite: bool, labels: str) -> None:
    """The labels that the run was told are never written over."""
    if labels and not Path(labels).is_file():
        raise UserError(
            f"The run was trained with --labels {labels}, and there is no such file here: put it back, or call "
            "label-next in the folder where the run was started, for the new table begins with these labels."
        )
    if labels and os.path.realpath(out) == os.path.realpath(labels):
        raise UserError(f"{out} holds the labels that the run was trained with: choose another name for --out.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists: choose another --out or add --overwrite.")


def told_rows(config: dict[str, Any]) -> list[list[Any]]:
    """The rows that the run was told, label and all: rounds of labeling add up."""
    stated = read_labels(str(config["labels"])) if config.get("labels") else []
    return [[getattr(row, name) for name in COLUMNS] for row in stated]


def usable_method(name: str) -> str:
    """Not every method can use the labels that are asked for: the flag that names another, where it is needed."""
    if name not in METHODS or method_class(name).USES_KNOWN:
        return ""
    warnings.warn(f"{name} has no use for such labels: train with another method, as below.", stacklevel=3)
    return "--method proud-plus "


def read_task(model: Model, folder: Path, data: str, root: str, skip_bad: bool = False) -> Task:
    """The run's own unlabeled images, with the labels that it was given."""
    about = read_run(folder)
    config, domains = about["config"], about["task"]["domains"]
    data, root = find_data(config, data, root)
    task = assemble(
        catalog_for(data, root or None),
        labeled=config["labeled"],
        test=None,
        unlabeled=[name for name, domain in domains.items() if domain["role"] == "unlabeled"],
        size=model.spec.size,
        square=model.spec.square,
        val=config["val"],
        seed=config["seed"],
        skip_bad=skip_bad or config["skip_bad"],
        progress=True,
        disk="auto",
    )
    if task.training.classes != model.classes:
        raise UserError(f"The classes of {data} are not those that the model in {folder} was trained on.")
    if other := other_images(about["task"], task.report):
        text = f"The images of {some(other)} in {data} are not those that the run in {folder} was trained on."
        warnings.warn(text, stacklevel=2)
    labels = config.get("labels")
    return state_labels(task, read_labels(labels), labels) if labels else task


def judge(model: Model, domain: UnlabeledDomain, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features, guessed class and uncertainty, found as in training: by the site's prototypes, with or without the
    classifier, or by the classifier alone. `labels` are the labeled domain's."""
    features, logits = model.outputs(domain.images)
    probs = probabilities(logits, model.trust.temperature if model.trust else 1.0)
    found = model.prototypes or {}
    if f"site/{domain.name}" not in found:
        return features, probs.argmax(1), -(probs * probs.clamp_min(1e-12).log()).sum(1)
    distances, aligned, present = to_prototypes(features, found, domain.name)
    settings = model.config.get("method_config", {})
    if "classifier" in settings:
        guess, doubt, _ = ops.consensus(
            distances.unsqueeze(0),
            probabilities(logits).unsqueeze(0),
            found["tau"],
            present,
            classifier=settings["classifier"],
            balance=settings.get("balance", 0.0),
            prior=ops.expected_mix(labels, len(model.classes), settings.get("class_mix") == "even"),
        )
        return features, guess, doubt
    guess = ops.nearest_prototype(aligned, found[f"site/{domain.name}"], present)
    return features, guess, ops.uncertainty(distances, found["tau"], present)
