"""What the training of a model saw of a domain."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proud.data.catalog import Catalog, DomainFiles
from proud.data.csv_table import read_labels
from proud.data.decode import hash_all
from proud.data.task import digest
from proud.errors import UserError
from proud.manifest import Files
from proud.model.format import read_run, run_folder
from proud.stored import TaskRecord


@dataclass(frozen=True)
class TrainedOn:
    """What a run's training saw of a domain."""

    labeled: bool = False
    """it is the labeled domain"""
    unlabeled: bool = False
    """it is one of the unlabeled domains"""
    known: int = 0
    """images whose labels were added by --labels"""
    copies: int = 0
    """images that also occur in the domains that were trained on"""


def is_own_data(config: dict[str, Any], data: str, root: str) -> bool:
    """Whether this is the data that the run was trained on, under whatever path."""
    own = config.get("data", "")
    if "embedded" in (own, data) or own in ("", "python"):
        return own == data == "embedded"
    return os.path.realpath(root or data) == os.path.realpath(config.get("root") or own)


def trained_on(folder: Path, config: dict[str, Any], catalog: Catalog, domain: DomainFiles, own: bool) -> TrainedOn:
    """A domain is recognised by its images, wherever they are now; by its path (`own`) if some cannot be read."""
    task, added = stored_task(folder), added_contents(config)
    about = task["domains"].get(domain.name) if task else None
    kept = task.get("pictures", {}).get(domain.name) if task else None
    role, known = (about["role"], about.get("known", 0)) if about else ("", 0)
    copies = task.get("test_images_also_in_training", 0) if task and role == "test" else 0
    same = TrainedOn(domain.name == config.get("labeled"), role == "unlabeled", known, copies)
    if own and (kept is None or (task and task["skipped"])):  # unreadable images have no content to be recognised by
        return same
    if same == TrainedOn() and not added:
        return same
    contents = hash_all(catalog.sources(domain))
    if kept is not None and digest(sorted(contents)) == kept:
        return same
    return TrainedOn(known=sum(content in added for content in contents))


def stored_task(folder: Path) -> TaskRecord | None:
    """The run's description of its data; None if only the model was saved. An error if it is damaged."""
    return read_run(folder)["task"] if Files(run_folder(folder)).has("run.json") else None


def added_contents(config: dict[str, Any]) -> set[str]:
    """Contents of the images whose labels were added, if that table still exists."""
    try:
        rows = read_labels(str(config["labels"])) if config.get("labels") else []
    except UserError:
        return set()
    return {row.content for row in rows} - {""}
