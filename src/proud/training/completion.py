"""The end of a run: the manifest that makes it a finished one, and what becomes of a finished run that is resumed."""

from __future__ import annotations

import warnings

from proud.config import Options
from proud.errors import UserError
from proud.files import MOST_TENSOR_BYTES, json_file
from proud.manifest import MANIFEST, Damaged, Files, finish_renaming, manifest_file, replace_together
from proud.model.format import MODEL_FOLDER, RESULT, lost_manifest, read_result
from proud.stamps import Stamp
from proud.stored import ResultRecord
from proud.training.checkpoint import is_checkpoint
from proud.training.records import RESTORE
from proud.training.run_folder import RunFolder, remove_checkpoints

SHOWN_ONLY = ("snapshots/", "pseudo_labels.csv")  # what a result does not depend on


def commit(folder: RunFolder, stamps: dict[str, Stamp], result: ResultRecord) -> None:
    """The run is finished as soon as its manifest is written. Every file must still be what the run wrote."""
    content = json_file(result)
    listed = {RESULT: Stamp.of(content)}
    for name, stamp in (stamps | {"run.json": _found(folder, "run.json")}).items():
        if _found(folder, name) == stamp:
            listed[name] = stamp
        elif name.startswith(SHOWN_ONLY):
            warnings.warn(f"{folder.path / name} was changed since it was written, and is left out", stacklevel=2)
        else:
            raise UserError(f"{folder.path / name} was changed while this run was writing it: {RESTORE}")
    replace_together(folder, {RESULT: content, MANIFEST: manifest_file(listed)})


def _found(folder: RunFolder, name: str) -> Stamp:
    try:
        return Stamp.of(folder.read(name, MOST_TENSOR_BYTES))
    except OSError:
        return Stamp(0, "")


def finished_result(folder: RunFolder, options: Options) -> ResultRecord | None:
    """Of a run to be resumed: its result if it is finished and whole, None if there is something left to do.

    A finished run of which something is damaged is made whole again from its last checkpoint, if it was kept.
    """
    path = folder.path
    checkpoints = any(map(is_checkpoint, folder.sub("checkpoints").names()))
    try:
        finish_renaming(folder)
        if lost_manifest(path):
            raise Damaged(path, MANIFEST, "is missing")
        Files(path).check()
        result = read_result(path)
        if result is not None and folder.has(MODEL_FOLDER):
            Files(path / MODEL_FOLDER).check()
    except Damaged as error:
        if not checkpoints or not error.can_be_remade:
            raise
        warnings.warn(f"{error.what}: it is made again from the last checkpoint", stacklevel=2)
        return None
    if result is not None and not options.keep_checkpoints:
        remove_checkpoints(folder)
    return result
