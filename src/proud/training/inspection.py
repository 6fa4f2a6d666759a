"""`proud verify`: every file of a run or of a model, compared with the checksums that were written with it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from proud.errors import UserError
from proud.files import MOST_LINES_BYTES
from proud.held import HeldFolder
from proud.manifest import MANIFEST, Damaged, Files
from proud.model.format import DESCRIPTION, MODEL_FOLDER, lost_manifest, read_run
from proud.stamps import Stamp
from proud.training.checkpoint import Checkpoint, is_checkpoint, read_checkpoint


class Finding(NamedTuple):
    """A file, and what is wrong with it; an empty `problem` if it is intact."""

    name: str
    problem: str = ""


def inspect(folder: Path) -> list[Finding]:
    """Of a finished run, of a run that can be resumed, or of a model."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    found = listed_files(folder)
    if (folder / MODEL_FOLDER / MANIFEST).exists():
        found += [Finding(f"{MODEL_FOLDER}/{name}", problem) for name, problem in listed_files(folder / MODEL_FOLDER)]
    if (folder / "run.json").exists():
        found += unfinished(folder)
    if not found:
        what = "a model of an earlier version" if (folder / DESCRIPTION).exists() else "neither a run nor a model"
        raise UserError(f"{folder} has no checksums: it is {what}.")
    return without_repeats(found)


def without_repeats(found: list[Finding]) -> list[Finding]:
    """A file may be checked in two ways: what is wrong with it counts."""
    worst: dict[str, Finding] = {}
    for finding in found:
        if finding.problem or finding.name not in worst:
            worst[finding.name] = finding
    return list(worst.values())


def listed_files(folder: Path) -> list[Finding]:
    """Those of the manifest."""
    try:
        files = Files(folder)
    except Damaged as error:
        return [Finding(MANIFEST, error.what)]
    found = [Finding(MANIFEST)] if files.stamps else []
    for name, stamp in (files.stamps or {}).items():
        try:
            files.read(name, stamp.size)
            found.append(Finding(name))
        except Damaged as error:
            found.append(Finding(name, error.what))
    return found


def unfinished(folder: Path) -> list[Finding]:
    """What a resumed run needs: its description, checkpoints, and the records up to the newest of them."""
    run_id, found = "", []
    try:
        run_id = read_run(folder, compare=False).get("id", "")
        found.append(Finding("run.json"))
        if lost_manifest(folder):
            found.append(Finding(MANIFEST, f"{folder / MANIFEST} is missing"))
    except UserError:
        found.append(Finding("run.json", f"{folder / 'run.json'} is damaged"))
    with HeldFolder(folder) as held:
        place, newest = held.sub("checkpoints"), None
        for name in (name for name in place.names() if is_checkpoint(name) and name.endswith(".json")):
            try:
                newest = read_checkpoint(place, name.removesuffix(".json"), run_id)
                found.append(Finding(f"checkpoints/{name}"))
            except (OSError, ValueError) as error:
                found.append(Finding(f"checkpoints/{name}", f"{place.path / name} is damaged ({error})"))
        return found + (records_of(held, newest) if newest is not None else [])


def records_of(folder: HeldFolder, newest: Checkpoint) -> list[Finding]:
    found = []
    for name in ("records.jsonl", "timings.jsonl"):
        stamp = newest.stamps.get(name)
        try:
            content = folder.read(name, MOST_LINES_BYTES)
        except OSError:
            content = b""
        whole = stamp is None or Stamp.of(content[: stamp.size]) == stamp
        found.append(Finding(name, "" if whole else f"{folder.path / name} was changed since the last checkpoint"))
    return found
