"""The run's folder: who may write it, and which of its files may be replaced."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from proud.config import Options, RunConfig, config_difference
from proud.errors import UserError
from proud.files import probe
from proud.held import HeldFolder, new_id
from proud.manifest import MANIFEST
from proud.marks import MARK, is_marked, mark_file, read_mark
from proud.model.format import CARD, FOUND_SITES, MODEL_FILES, MODEL_FOLDER, other_images, read_run
from proud.stamps import Stamp
from proud.stored import RunRecord, Settings, TaskRecord
from proud.training.checkpoint import is_checkpoint
from proud.training.folds import FOLDS
from proud.training.snapshot import MOMENTS

LONGEST_NAME = 60  # letters; a folder's name may have 255 bytes
RUN_FILES = (
    MANIFEST,
    "result.json",
    "records.jsonl",
    "timings.jsonl",
    "pseudo_labels.csv",
    FOUND_SITES,
    "outputs.safetensors",
    "diagnosis.json",
    *(f"snapshots/{moment}.safetensors" for moment in MOMENTS),
    *(f"{MODEL_FOLDER}/{name}" for name in MODEL_FILES),
    *(MODEL_FILES - {CARD, MANIFEST}),  # where earlier versions wrote them; a card beside them is the user's
)
"""run.json is not among them: it describes the rest, and is replaced atomically."""


UNCHECKED = {MARK, f"{MODEL_FOLDER}/{CARD}"}
"""The mark changes with its writer, and people may edit the card."""


class RunFolder(HeldFolder):
    """The folder of a run. Once it is claimed, every change checks that this process still owns it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.run_id = ""
        self.stamps: dict[str, Stamp] = {}
        """of the files that were written, whole"""
        self._writer = ""

    def claim(self, run_id: str) -> None:
        """From now on another process that claims the folder, or a folder in its place, stops this one."""
        writer = new_id()
        self.write(MARK, mark_file("run", run_id, writer))
        self.run_id, self._writer = run_id, writer

    def write(self, name: str, content: bytes) -> None:
        super().write(name, content)
        if name not in UNCHECKED:
            self.stamps[name] = Stamp.of(content)

    def guard(self) -> None:
        if not self._writer:
            return
        mark = read_mark(self)
        if mark is None or mark["writer"] != self._writer or not self.is_in_place():
            raise UserError(
                f"{self.path} was removed, moved or taken over by another process. This one stops; it has changed "
                "nothing there since."
            )

    def is_in_place(self) -> bool:
        """Whether the path still leads to the folder that is held."""
        with suppress(OSError):
            return os.path.samestat(self.path.stat(), os.fstat(self.handle()))
        return False


def default_folder(run: RunConfig) -> str:
    data = Path(run.data).resolve().stem
    name = f"{data}-{run.labeled}-{run.test}-{run.method}-{run.seed}"
    return str(Path("runs") / re.sub(r"[^\w.-]+", "_", name)[-LONGEST_NAME:])


@contextmanager
def opened(folder: RunFolder, config: Settings, options: Options) -> Iterator[RunRecord | None]:
    """Lock a folder that can be used, changing nothing in it; yields the description of a run to be resumed.

    A new folder that is still empty at the end is removed: a refused run leaves nothing.
    """
    path = folder.path
    if options.resume and options.overwrite:
        raise UserError("--resume and --overwrite exclude each other.")
    if path.exists() and not path.is_dir():
        raise UserError(f"--out {path} is a file, not a folder.")
    new = not path.exists()
    try:
        _check_writable(path)
        with folder:
            lock(folder)
            yield stored_run(path, config, options)
    finally:
        if new:
            with suppress(OSError):
                path.rmdir()


def stored_run(folder: Path, config: Settings, options: Options) -> RunRecord | None:
    """The description of a run to be resumed; None for a new or replaced one."""
    if not any(not path.name.startswith(".") for path in folder.iterdir()):
        return None
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} has files that do not belong to a run. Choose another --out.")
    if options.resume:
        about = read_run(folder, compare=False)  # a damaged manifest is written again
        refuse_difference(folder, about["config"], config)
        return about
    if not options.overwrite:
        raise UserError(f"{folder} holds a run: continue it with --resume, or replace it with --overwrite.")
    check_own(folder)
    return None


def check_own(folder: Path) -> None:
    """Only a run is replaced: its mark says so or, for runs of earlier versions, its description."""
    with HeldFolder(folder) as held:
        if not is_marked(held, "run"):
            read_run(folder, compare=False)


def refuse_difference(folder: Path, stored: Settings, now: Settings) -> None:
    difference = config_difference(stored, now)
    if difference:
        lines = "\n  ".join(difference)
        raise UserError(
            f"{folder} holds a run with other settings (stored → now):\n  {lines}\nUse the same, or another --out."
        )


def refuse_other_data(folder: Path, stored: TaskRecord, now: TaskRecord) -> None:
    """A run continues with the images it started with."""
    difference = config_difference(_without_examples(stored), _without_examples(now))
    difference += [f"{name}: other images or labels" for name in other_images(stored, now)]
    if difference or stored["classes"] != now["classes"]:
        lines = "\n  ".join(difference or ["the classes differ"])
        raise UserError(
            f"The images differ from those that the run in {folder} started with (stored → now):\n  {lines}\n"
            "Restore them, or start a new run in another --out."
        )


def _without_examples(task: TaskRecord) -> dict[str, Any]:
    """The paths of examples change when a folder is moved."""
    return {
        name: {key: item for key, item in domain.items() if key != "examples"}
        for name, domain in task["domains"].items()
    }


def clear(folder: RunFolder) -> None:
    """Remove a run's own files; run.json stays until a new one replaces it. Files of others are kept."""
    remove_folds(folder)
    remove_checkpoints(folder)
    folder.remove(*RUN_FILES)
    tidy(folder)
    for name in ("snapshots", MODEL_FOLDER):
        folder.sub(name).remove_if_empty()
    folder.sync()  # before run.json says otherwise


def remove_checkpoints(folder: RunFolder) -> None:
    checkpoints = folder.sub("checkpoints")
    checkpoints.remove_parts()
    checkpoints.remove(*filter(is_checkpoint, checkpoints.names()))
    checkpoints.remove_if_empty()


def remove_folds(folder: RunFolder) -> None:
    """Of a cross-validation: runs inside the run, numbered."""
    folds = folder.sub(FOLDS)
    for name in folds.names():
        if name.isdigit():
            with RunFolder(folds.path / name) as fold:
                clear(fold)
                fold.remove("run.json", MARK)
            folds.sub(name).remove_if_empty()
    folds.remove_if_empty()


def tidy(folder: RunFolder) -> None:
    """Remove partial files of killed processes."""
    for place in (folder, folder.sub("checkpoints"), folder.sub("snapshots"), folder.sub(MODEL_FOLDER)):
        place.remove_parts()


def lock(folder: RunFolder) -> None:
    """Two processes must not write one run. The kernel releases the lock when the process ends, however it ends."""
    handle = folder.handle()
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(f"Another process is writing the run in {folder.path}. Wait for it, or stop it.") from error
    except OSError as error:
        raise UserError(
            f"{folder.path} is on a file system without locks ({error.strerror}), so two processes could write one "
            "run. Choose an --out on another file system."
        ) from error
    if not folder.is_in_place():
        raise UserError(f"{folder.path} was replaced by another process just now. Try again.")


def _check_writable(folder: Path) -> None:
    try:
        probe(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot write to {folder}: {why}. Choose another --out.") from error
