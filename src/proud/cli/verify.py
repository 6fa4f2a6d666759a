"""`proud verify`."""

from __future__ import annotations

from proud.cli.flags.verify import VerifyArguments
from proud.cli.show import show_plain
from proud.manifest import MANIFEST
from proud.model.format import MODEL_FOLDER
from proud.training.inspection import Finding, inspect


def run(arguments: VerifyArguments) -> int:
    found = inspect(arguments.run)
    damaged = [finding for finding in found if finding.problem]
    for finding in damaged:
        show_plain(f"{finding.problem}.")
    if not damaged:
        show_plain(f"{arguments.run}: all {len(found)} files are intact.")
        return 0
    show_plain(f"{len(damaged)} of {len(found)} files are damaged or missing. {what_still_works(found)}".strip())
    return 1


def what_still_works(found: list[Finding]) -> str:
    lost = {finding.name for finding in found if finding.problem}
    inside = [finding.name for finding in found if finding.name.startswith(f"{MODEL_FOLDER}/")]
    parts = []
    if inside and not lost & set(inside):
        parts.append("The model is intact: predict, evaluate and export work.")
    checkpoints = [finding.name for finding in found if finding.name.startswith("checkpoints/")]
    if set(checkpoints) - lost and not lost & {"run.json", "records.jsonl", "timings.jsonl"}:
        parts.append("`proud train … --resume` continues from an intact checkpoint.")
    if not parts and lost != {MANIFEST}:
        parts.append("Restore the files from a copy, or train again with --overwrite.")
    return " ".join(parts)
