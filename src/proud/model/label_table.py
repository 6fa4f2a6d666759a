"""Tables of added labels, as `proud label-next` and `proud review` write them for `proud train --labels`. No torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from proud.data.csv_table import read_labels
from proud.errors import UserError

COLUMNS = ["path", "domain", "label", "guess", "uncertainty", "content"]


def refuse_own_labels(out: Path, config: dict[str, Any]) -> None:
    """The labels that a run was trained with are never overwritten: a new table starts with them."""
    labels = str(config.get("labels", ""))
    if labels and not Path(labels).is_file():
        raise UserError(
            f"The run was trained with --labels {labels}, which does not exist here: put it back, or call the command "
            "in the folder where the run was started. The new table starts with these labels."
        )
    if labels and os.path.realpath(out) == os.path.realpath(labels):
        raise UserError(f"{out} holds the labels that the run was trained with: choose another name for --out.")


def earlier_rows(config: dict[str, Any]) -> list[list[Any]]:
    """The rows with labels that the run was trained with: rounds of labeling add up."""
    rows = read_labels(str(config["labels"])) if config.get("labels") else []
    return [[getattr(row, name) for name in COLUMNS] for row in rows]
