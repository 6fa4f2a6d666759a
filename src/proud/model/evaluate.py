"""Measuring a saved model on a labeled domain."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from proud.data.task import digest
from proud.data.benchmarks import catalog_for
from proud.data.catalog import Catalog, refuse_splits, some
from proud.data.labels import read_labels
from proud.data.roles import sort_classes, with_images
from proud.data.decode import Source, hash_all, stored_side
from proud.model.predict import Model, load_model
from proud.model.reading import Reading
from proud.errors import UserError
from proud.files import write_json
from proud.training.run_folder import read_run
from proud.machine import environment
from proud.trust.fitted import measure

if TYPE_CHECKING:
    from proud.cli.main import EvaluateArguments


def find_data(config: dict[str, Any], data: str, root: str) -> tuple[str, str]:
    """`--data` and `--root` as they are given or, by default, as the run's were."""
    if data:
        return data, root
    own, own_root = str(config.get("data", "")), str(config.get("root", ""))
    if own in ("", "python"):
        raise UserError("The run's data was handed over in Python: say where to find images now, with --data.")
    if own != "embedded" and not root and not Path(own_root or own).exists():
        option = "--root" if own_root else "--data"
        raise UserError(
            f"The run was trained with {option} {own_root or own}, and there is nothing of that name here: say where "
            f"its images are now, with {option}."
        )
    return own, root or own_root


def find_domain(model: Model, catalog: Catalog, name: str) -> tuple[str, list[Source], Tensor]:
    """One domain's name as its folder spells it, its files, and their labels as the model numbers them. [N]."""
    domain = with_images(catalog, name)
    name = domain.name
    refuse_splits(domain)
    numbers = {label: k for k, label in enumerate(model.classes)}
    without = [entry.location for entry in domain.entries if entry.label is None]
    if without:
        raise UserError(
            f"{len(without)} images of {name!r} have no label, so nothing can be measured on them: {some(without)}. "
            "Class folders name the labels; `proud predict` needs none."
        )
    strange = sort_classes({entry.label for entry in domain.entries if entry.label and entry.label not in numbers})
    if strange:
        raise UserError(
            f"Images of {name!r} have labels that the model does not know: {some(strange)}. "
            f"It knows: {some(model.classes)}."
        )
    if name in catalog.notices:
        warnings.warn(catalog.notices[name], stacklevel=2)
    sources: list[Source] = [catalog.source(domain, entry) for entry in domain.entries]
    labels = torch.tensor([numbers[str(entry.label)] for entry in domain.entries])
    return name, sources, labels


def is_own_data(config: dict[str, Any], data: str, root: str) -> bool:
    """Whether this is what the run was trained on, by whatever path it is named."""
    own = config.get("data", "")
    if "embedded" in (own, data) or own in ("", "python"):
        return own == data == "embedded"
    return os.path.realpath(root or data) == os.path.realpath(config.get("root") or own)


@dataclass(frozen=True)
class Learned:
    """What a run learned from a domain."""

    labeled: bool = False
    """it is the labeled one"""
    unlabeled: bool = False
    """it is one of the unlabeled ones"""
    known: int = 0
    """images whose labels the run was told"""
    copies: int = 0
    """images that it also found in the domains it learned from"""


def learned_from(folder: Path, config: dict[str, Any], catalog: Catalog, name: str, own: bool) -> Learned:
    """A domain is known again by its pictures; by its path alone (`own`) where an older run has not kept theirs."""
    task, told = stored_task(folder), stated_contents(config)
    about = task.get("domains", {}).get(name, {})
    role, kept = about.get("role"), task["pictures"].get(name)
    copies = task.get("test_images_also_in_training", 0) if role == "test" else 0
    same = Learned(name == config.get("labeled"), role == "unlabeled", about.get("known", 0), copies)
    if own and (kept is None or task.get("skipped")):  # what cannot be read has no content to be known by
        return same
    if same == Learned() and not told:
        return same
    domain = with_images(catalog, name)
    contents = hash_all([catalog.source(domain, entry) for entry in domain.entries])
    if kept is not None:
        known_again = digest(sorted(contents)) == kept
    else:
        rows = sorted((content, str(entry.label)) for content, entry in zip(contents, domain.entries, strict=True))
        known_again = digest(" ".join(row) if same.labeled else row[0] for row in rows) == task["content"].get(name)
    return same if known_again else Learned(known=sum(content in told for content in contents))


def stored_task(folder: Path) -> dict[str, Any]:
    """What the run says of its data; nothing where only the model was saved."""
    try:
        task: dict[str, Any] = read_run(folder)["task"]
    except UserError:
        task = {}
    digests = {key: task.get(key) for key in ("content", "pictures")}
    return task | {key: found if isinstance(found, dict) else {} for key, found in digests.items()}


def stated_contents(config: dict[str, Any]) -> set[str]:
    """The images whose labels the run was told, as far as its table is still there and knows them by content."""
    try:
        stated = read_labels(str(config["labels"])) if config.get("labels") else []
    except UserError:
        return set()
    return {row.content for row in stated} - {""}


def evaluate_domain(arguments: EvaluateArguments) -> dict[str, Any]:
    """All numbers, and what they are of."""
    model = load_model(arguments.run, arguments.device)
    data, root = find_data(model.config, arguments.data, arguments.root)
    catalog = catalog_for(data, root or None)
    domain, sources, labels = find_domain(model, catalog, arguments.domain)
    side = stored_side(model.spec.size)
    reading = Reading(sources, side, arguments.skip_bad, progress=True, square=model.spec.square)
    pieces = [(rows, model.logits(images)) for rows, images in reading.pieces()]
    labels = labels[[row for rows, _ in pieces for row in rows]]
    logits = torch.cat([found for _, found in pieces])
    right = logits.argmax(1) == labels
    per_class = []
    for k, name in enumerate(model.classes):
        mine = labels == k
        per_class.append((name, int(mine.sum()), int((mine & right).sum())))
    trust: dict[str, Any] | None = None
    if model.trust:
        found = measure(model.trust, logits, labels, arguments.coverage, arguments.risk, arguments.sets)
        about = {"temperature": model.trust.temperature, "validation_images": model.trust.images}
        trust = found | about | {"calibration": model.trust.calibration()}
    own = not arguments.data or is_own_data(model.config, data, root)
    learned = learned_from(arguments.run, model.config, catalog, domain, own)
    return {
        "model": str(arguments.run),
        "data": data,
        "root": root,
        "domain": domain,
        "images": len(right),
        "accuracy": right.float().mean().item(),
        "per_class": per_class,
        "asked": {"coverage": arguments.coverage, "risk": arguments.risk, "sets": arguments.sets},
        "trust": trust,
        "trained_on": learned.labeled,
        "trained_on_without_labels": learned.unlabeled,
        "known": learned.known,
        "copies": learned.copies,
        "left_out": reading.bad,
        **environment(model.device),
    }


def write_measured(path: Path, measured: dict[str, Any]) -> None:
    """As JSON, with the command that found it."""
    per_class = [
        {"class": name, "images": count, "right": right, "accuracy": right / count if count else None}
        for name, count, right in measured["per_class"]
    ]
    left_out = [file._asdict() for file in measured["left_out"]]
    command = shlex.join(["proud", *sys.argv[1:]])
    write_json(path, measured | {"per_class": per_class, "left_out": left_out, "command": command})
