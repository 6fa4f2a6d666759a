"""The manifest of a run or of a model: size and SHA-256 of every file that a later command believes.

It is written last, so a folder with a manifest is whole. Every reader compares what it reads with it.
"""

from __future__ import annotations

import os
from pathlib import Path

from proud.errors import UserError
from proud.files import json_file, read_regular
from proud.held import HeldFolder
from proud.stamps import Stamp, sealed
from proud.stored import CheckpointRecord, ManifestRecord
from proud.typed import parse_sealed

MANIFEST = "manifest.json"
FORMAT = "proud-manifest-1"
MOST_BYTES = 1_000_000


NOT_REMADE = ("run.json", "records.jsonl", "timings.jsonl", "snapshots/", "pseudo_labels.csv")
"""What a run writes while it trains: no checkpoint can give it back."""


class Damaged(UserError):
    """A file is not what it was when it was written. The message says what still works."""

    def __init__(self, folder: Path, name: str, what: str) -> None:
        self.what = f"{folder / name} {what}"
        self.can_be_remade = not name.startswith(NOT_REMADE)
        super().__init__(f"{self.what}. {remedy(folder, self.can_be_remade)}")


class Files:
    """A folder as a later command reads it. A run that is not finished has no manifest: what its newest checkpoint
    lists is compared, the rest is read as it is."""

    def __init__(self, folder: Path, compare: bool = True) -> None:
        self.folder = folder
        self.stamps = read_manifest(folder) if compare else None
        self.run, self.so_far = written_so_far(folder) if compare and self.stamps is None else ("", {})

    def has(self, name: str) -> bool:
        """Whether the folder holds this file. One that the manifest does not list is not part of it."""
        if self.stamps is None:
            return name in self.so_far or os.path.lexists(self.folder / name)
        return name in self.stamps

    def read(self, name: str, most: int) -> bytes:
        """FileNotFoundError if it is not part of the folder, `Damaged` if it is not what it was."""
        path = self.folder / name
        if self.stamps is None:
            return self._read_so_far(name, most)
        if name not in self.stamps:
            raise FileNotFoundError(f"{path} is not part of {self.folder}")
        stamp = self.stamps[name]
        if stamp.size > most:
            raise OSError(f"{stamp.size:,} bytes exceed the limit of {most:,}")
        # a process that was killed while it replaced several files has not renamed all of them
        for place in (path, path.with_name(staged(path.name, stamp))):
            try:
                content = read_regular(place, stamp.size)
            except OSError:
                continue
            if Stamp.of(content) == stamp:
                return content
        raise Damaged(self.folder, name, "is damaged" if os.path.lexists(path) else "is missing")

    def _read_so_far(self, name: str, most: int) -> bytes:
        stamp = self.so_far.get(name)
        try:
            content = read_regular(self.folder / name, most)
        except FileNotFoundError as error:
            if stamp is None:
                raise
            raise Damaged(self.folder, name, "is missing") from error
        # lines that came after the checkpoint are not in it
        if stamp is not None and Stamp.of(content[: stamp.size] if name.endswith(".jsonl") else content) != stamp:
            raise Damaged(self.folder, name, "was changed since the last checkpoint")
        return content

    def check(self) -> None:
        """`Damaged` if any file is."""
        for name, stamp in (self.stamps or {}).items():
            self.read(name, stamp.size)


def read_manifest(folder: Path) -> dict[str, Stamp] | None:
    """None if there is none."""
    path = folder / MANIFEST
    try:
        found = parse_sealed(read_regular(path, MOST_BYTES), ManifestRecord)
        return {name: Stamp(*stamp) for name, stamp in found["files"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise Damaged(folder, MANIFEST, f"is damaged ({error})") from error


def written_so_far(folder: Path) -> tuple[str, dict[str, Stamp]]:
    """The id of a run, and the files that it had written, as its newest intact checkpoint says."""
    for path in sorted((folder / "checkpoints").glob("checkpoint-*.json"), reverse=True):
        try:
            found = parse_sealed(read_regular(path, MOST_BYTES), CheckpointRecord)
            return found["run"], {name: Stamp(*stamp) for name, stamp in found["stamps"].items()}
        except (OSError, ValueError):
            continue
    return "", {}


def remedy(folder: Path, can_be_remade: bool) -> str:
    """What to do when a file of a run or of a model is lost."""
    run = folder if (folder / "run.json").exists() else folder.parent
    if not (run / "run.json").exists():
        return "Restore it from a copy, or save the model again."
    if can_be_remade and any((run / "checkpoints").glob("checkpoint-*.json")):
        return f"The checkpoints in {run} are kept: `proud train … --resume` writes it again."
    rest = f"`proud verify {run}` says what is intact"
    return f"Restore it from a copy, or train again with --overwrite; {rest}."


def manifest_file(stamps: dict[str, Stamp]) -> bytes:
    return json_file(sealed({"format": FORMAT, "files": stamps}))


def replace_together(folder: HeldFolder, files: dict[str, bytes]) -> None:
    """Replace several files as one, the last of which is their manifest: a kill leaves the old ones or the new ones.

    The new ones are written beside the old ones; the manifest decides which of them count; then they are renamed.
    """
    *others, last = files
    finish_renaming(folder)
    stamps = {name: Stamp.of(files[name]) for name in others}
    for name, stamp in stamps.items():
        folder.write_part(staged(name, stamp), name, files[name])
    folder.sync()
    folder.write(last, files[last])
    for name, stamp in stamps.items():
        folder.rename_part(staged(name, stamp), name)


def finish_renaming(folder: HeldFolder) -> None:
    """What a killed process left: files that its manifest lists get their names, the others are removed."""
    there = set(folder.names())
    for name, stamp in (read_manifest(folder.path) or {}).items():
        if staged(name, stamp) in there:
            folder.rename_part(staged(name, stamp), name)
    folder.remove_parts()


def staged(name: str, stamp: Stamp) -> str:
    """The name of a file until the manifest that lists it is written."""
    return f".{name}.{stamp.sha256[:8]}.proud-part"
