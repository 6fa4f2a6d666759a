"""`proud label-next`: the images of each unlabeled site whose labels would help a run most, as a table to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proud import ops
from proud.data.assemble import assemble
from proud.data.benchmarks import catalog_for
from proud.data.domain import Task, UnlabeledDomain
from proud.data.labels import read_labels, state_labels
from proud.deploy.predict import Model, load_model
from proud.errors import UserError
from proud.training.folder import read_run
from proud.training.records import write_table
from proud.trust.calibration import probabilities
from proud.trust.fitted import to_prototypes
from proud.trust.label_next import choose_images

if TYPE_CHECKING:
    from proud.label_cli import LabelNextArguments

COLUMNS = ["path", "domain", "label", "guess", "uncertainty", "content"]


def suggest(arguments: LabelNextArguments) -> dict[str, int]:
    """Write the table; returns the number of images per site."""
    if arguments.out.exists() and not arguments.overwrite:
        raise UserError(f"{arguments.out} exists: choose another --out or add --overwrite.")
    if arguments.k < 1:
        raise UserError(f"--k must be at least 1, got {arguments.k}.")
    model = load_model(arguments.run, arguments.device)
    task = read_task(model, arguments.run, arguments.data, arguments.root, arguments.skip_bad)
    rows, counts = [], {}
    for domain in task.training.unlabeled:
        paths = task.evaluation.audits[domain.name].paths
        features, guess, doubt = judge(model, domain, task.training.labeled.labels)
        chosen = choose_images(features, doubt, arguments.k, domain.known).tolist()
        for row in chosen:
            named = model.classes[int(guess[row])]
            rows.append([paths[row], domain.name, "", named, f"{doubt[row]:.4f}", domain.ids[row]])
        counts[domain.name] = len(chosen)
    write_table(arguments.out, COLUMNS, rows)
    return counts


def read_task(model: Model, folder: Path, data: str, root: str, skip_bad: bool = False) -> Task:
    """The run's own unlabeled images, with the labels that it was given."""
    about = read_run(folder)
    config, domains = about["config"], about["task"]["domains"]
    if not data:
        data, root = config.get("data", ""), root or config.get("root", "")
        if data in ("", "python"):
            raise UserError("The run's data was handed over in Python: say where to find images now, with --data.")
    task = assemble(
        catalog_for(data, root or None),
        labeled=config["labeled"],
        test=None,
        unlabeled=[name for name, domain in domains.items() if domain["role"] == "unlabeled"],
        size=model.spec.size,
        val=config["val"],
        seed=config["seed"],
        skip_bad=skip_bad or config["skip_bad"],
        progress=True,
    )
    if task.training.classes != model.classes:
        raise UserError(f"The classes of {data} are not those that the model in {folder} was trained on.")
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
    if settings.get("classifier"):
        guess, doubt, _ = ops.consensus(
            distances.unsqueeze(0),
            probabilities(logits).unsqueeze(0),
            found["tau"],
            present,
            classifier=settings["classifier"],
            balance=settings.get("balance", 0.0),
            prior=torch.bincount(labels, minlength=len(model.classes)) / len(labels),
        )
        return features, guess, doubt
    guess = ops.nearest_prototype(aligned, found[f"site/{domain.name}"], present)
    return features, guess, ops.uncertainty(distances, found["tau"], present)
