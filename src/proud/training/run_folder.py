"""The run's folder: who may write it, and which of its files may be replaced."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proud.config import Options, RunConfig, config_difference
from proud.errors import UserError
from proud.files import probe, remove_parts, user_errors
from proud.model.format import MODEL_FILES, MODEL_FOLDER, other_images, read_run
from proud.stored import RunRecord, Settings, TaskRecord
from proud.training.folds import FOLDS

LONGEST_NAME = 60  # letters; a folder's name may have 255 bytes
RUN_FILES = (
    "result.json",
    "records.jsonl",
    "timings.jsonl",
    "pseudo_labels.csv",
    "outputs.safetensors",
    "diagnosis.json",
    *(f"{MODEL_FOLDER}/{name}" for name in MODEL_FILES),
    *MODEL_FILES,  # where earlier versions wrote them
)
"""run.json is not among them: it describes the rest, and is replaced atomically."""


def default_folder(run: RunConfig) -> str:
    data = Path(run.data).resolve().stem
    name = f"{data}-{run.labeled}-{run.test}-{run.method}-{run.seed}"
    return str(Path("runs") / re.sub(r"[^\w.-]+", "_", name)[-LONGEST_NAME:])


@contextmanager
def opened(folder: Path, config: Settings, options: Options) -> Iterator[RunRecord | None]:
    """Lock a folder that can be used, changing nothing in it; yields the description of a run to be resumed.

    A new folder that is still empty at the end is removed: a refused run leaves nothing.
    """
    if options.resume and options.overwrite:
        raise UserError("--resume and --overwrite exclude each other.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file, not a folder.")
    new = not folder.exists()
    try:
        _check_writable(folder)
        with locked(folder):
            yield stored_run(folder, config, options)
    finally:
        if new:
            with suppress(OSError):
                folder.rmdir()


def stored_run(folder: Path, config: Settings, options: Options) -> RunRecord | None:
    """The description of a run to be resumed; None for a new or replaced one."""
    if not any(not path.name.startswith(".") for path in folder.iterdir()):
        return None
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} has files that do not belong to a run. Choose another --out.")
    if options.resume:
        about = read_run(folder)
        refuse_difference(folder, about["config"], config)
        return about
    if not options.overwrite:
        raise UserError(f"{folder} holds a run: continue it with --resume, or replace it with --overwrite.")
    return None


def refuse_difference(folder: Path, stored: Settings, now: Settings) -> None:
    difference = config_difference(stored, now)
    if difference:
        lines = "\n  ".join(difference)
        raise UserError(
            f"{folder} holds a run with other settings (stored → now):\n  {lines}\nUse the same, or another --out."
        )


def refuse_other_data(folder: Path, stored: TaskRecord, now: TaskRecord) -> None:
    """A run continues with the images it started with."""
    difference = config_difference(stored["domains"], now["domains"])
    difference += [f"{name}: other images or labels" for name in other_images(stored, now)]
    if difference or stored["classes"] != now["classes"]:
        lines = "\n  ".join(difference or ["the classes differ"])
        raise UserError(
            f"The images differ from those that the run in {folder} started with (stored → now):\n  {lines}\n"
            "Restore them, or start a new run in another --out."
        )


def clear(folder: Path) -> None:
    """Remove a run's own files; run.json stays until a new one replaces it."""
    with user_errors(folder):
        for name in ("checkpoints", "snapshots", FOLDS):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)  # an old checkpoint would be taken for the new run's
        for name in RUN_FILES:
            (folder / name).unlink(missing_ok=True)
    tidy(folder)


def tidy(folder: Path) -> None:
    """Remove partial files of killed processes."""
    for place in (folder, folder / "checkpoints", folder / "snapshots", folder / MODEL_FOLDER):
        remove_parts(place)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two processes must not write one run. The kernel releases the lock when the process ends, however it ends."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another process is writing the run in {folder}. Wait for it, or stop it.") from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _check_writable(folder: Path) -> None:
    try:
        probe(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot write to {folder}: {why}. Choose another --out.") from error
