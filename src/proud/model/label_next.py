"""`proud label-next`: the images of each unlabeled site whose labels would help a run most, as a table to fill in."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from proud import ops
from proud.config import NOTHING, RunConfig
from proud.data.csv_table import read_labels
from proud.data.source import find_task
from proud.data.task import read_task
from proud.data.types import Task, UnlabeledDomain
from proud.errors import UserError
from proud.files import write_table
from proud.model.evaluate import find_data
from proud.model.format import other_images, read_run
from proud.model.load import load_model
from proud.model.predict import Model
from proud.text import some
from proud.trust.calibration import probabilities
from proud.trust.fitted import to_prototypes
from proud.trust.label_next import choose_images

COLUMNS = ["path", "domain", "label", "guess", "uncertainty", "content"]


def suggest(
    folder: Path,
    out: Path,
    *,
    k: int = 20,
    data: str = "",
    root: str = "",
    overwrite: bool = False,
    skip_bad: bool = False,
    device: str = "auto",
    progress: bool = False,
) -> dict[str, int]:
    """Write the table; returns the number of images per site."""
    if k < 1:
        raise UserError(f"--k must be at least 1, got {k}.")
    model = load_model(folder, device)
    check_table(out, overwrite, str(model.config.get("labels", "")))
    task = run_task(model, folder, data, root, skip_bad, progress)
    rows, counts = earlier_rows(model.config), {}
    for domain in task.training.unlabeled:
        paths = task.evaluation.audits[domain.name].paths
        features, guess, doubt = judge(model, domain, task.training.labeled.labels)
        chosen = choose_images(features, doubt, k, domain.known).tolist()
        for row in chosen:
            name = model.classes[int(guess[row])]
            rows.append([paths[row], domain.name, "", name, f"{doubt[row]:.4f}", domain.ids[row]])
        counts[domain.name] = len(chosen)
    write_table(out, COLUMNS, rows)
    return counts


def check_table(out: Path, overwrite: bool, labels: str) -> None:
    """The labels that the run was trained with are never overwritten."""
    if labels and not Path(labels).is_file():
        raise UserError(
            f"The run was trained with --labels {labels}, which does not exist here: put it back, or call label-next "
            "in the folder where the run was started. The new table starts with these labels."
        )
    if labels and os.path.realpath(out) == os.path.realpath(labels):
        raise UserError(f"{out} holds the labels that the run was trained with: choose another name for --out.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists: choose another --out or add --overwrite.")


def earlier_rows(config: dict[str, Any]) -> list[list[Any]]:
    """The rows with labels that the run was trained with: rounds of labeling add up."""
    rows = read_labels(str(config["labels"])) if config.get("labels") else []
    return [[getattr(row, name) for name in COLUMNS] for row in rows]


def run_task(model: Model, folder: Path, data: str, root: str, skip_bad: bool, progress: bool = False) -> Task:
    """The run's own unlabeled images, with the labels that it was given."""
    about = read_run(folder)
    data, root = find_data(about["config"], data, root)
    run = RunConfig.from_stored(about["config"])
    unlabeled = (name for name, domain in about["task"]["domains"].items() if domain["role"] == "unlabeled")
    spec = replace(
        run,
        data=data,
        root=root,
        test=NOTHING,
        unlabeled=tuple(unlabeled),
        square=model.spec.square,
        skip_bad=skip_bad or run.skip_bad,
    )
    task = read_task(find_task(spec), model.spec.size, progress=progress, disk="auto")
    if task.training.classes != model.classes:
        raise UserError(f"The classes of {data} differ from those that the model in {folder} was trained on.")
    if other := other_images(about["task"], task.report):
        text = f"The images of {some(other)} in {data} differ from those that the run in {folder} was trained on."
        warnings.warn(text, stacklevel=2)
    return task


def judge(model: Model, domain: UnlabeledDomain, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features, guessed class and uncertainty, computed as in training: by the site's prototypes, with or without the
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
