"""What is refused before a run starts, and what its user is told before it takes hours."""

from __future__ import annotations

import os
from pathlib import Path

from proud.config import Options, RunConfig
from proud.data.types import Task
from proud.distributed.group import ALONE, Group
from proud.errors import UserError
from proud.methods import method_class
from proud.methods.base import MethodConfig
from proud.model.format import run_folder
from proud.model.load import load_model
from proud.training.run_folder import default_folder
from proud.training.start import Start


def output_folder(config: RunConfig, options: Options) -> Path:
    return Path(options.out or default_folder(config))


def refuse_own_start(config: RunConfig, options: Options) -> None:
    """Replacing the model that a run starts from would destroy it before the run has ended."""
    if not config.start_from:
        return
    run = run_folder(Path(config.start_from))
    if os.path.realpath(output_folder(config, options)) == os.path.realpath(run):
        raise UserError(f"{run} is the run that this one starts from: choose another --out.")


def check_folds(config: RunConfig, options: Options, group: Group) -> None:
    if options.folds == 1:
        raise UserError("--folds 1 holds out nothing: use 2 or more, for example --folds 5.")
    if options.folds and config.start_from:
        raise UserError(
            "--folds and --from exclude each other: that model may have learned the labels that a fold hides."
        )
    if options.folds and group is not ALONE:
        raise UserError("--folds needs a single process: leave it out under torchrun.")


def other_folds(folder: Path, folds: int) -> str:
    """A warning about a finished run that was calibrated with another number of folds."""
    if not folds:
        return ""
    trust = load_model(folder, "cpu").trust
    done = trust.folds if trust else 0
    if folds == done:
        return ""
    how = f"with --folds {done}" if done else "without --folds"
    return f"The run in {folder} is finished and was calibrated {how}: --folds {folds} needs a run in another --out."


def check_known_labels(task: Task, method: str) -> None:
    labeled = any(domain.known is not None for domain in task.training.unlabeled)
    if labeled and not method_class(method).uses_known_labels:
        raise UserError(f"{method} does not support --labels: choose --method proud-plus, or leave --labels out.")


def notices(config: RunConfig, settings: MethodConfig, start: Start | None, task: Task) -> list[str]:
    """What is worth knowing before training starts."""
    found = [too_few_images(task, settings.batch_size)]
    found += start.warnings(config, task.report) if start is not None else []
    return [text for text in found if text]


def too_few_images(task: Task, batch_size: int) -> str:
    """A warning if a batch is larger than all domains and than usual: its images repeat, and take memory each time."""
    training = task.training
    largest = max([len(training.labeled), *map(len, training.unlabeled)])
    if batch_size <= max(largest, MethodConfig.batch_size):
        return ""
    return (
        f"--batch-size {batch_size} is more than the {largest} images of the largest domain: every step repeats "
        f"images and takes memory for all of them. {max(2, largest)} would do."
    )
