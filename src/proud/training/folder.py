"""The run's folder: whose it is, what may be replaced, what it tells about the run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from proud.config import Options, RunConfig, config_difference
from proud.errors import UserError
from proud.training.files import read_json

FORMAT = "proud-run-1"
RUN_FILES = (
    "result.json",
    "records.jsonl",
    "timings.jsonl",
    "pseudo_labels.csv",
    "model.safetensors",
    "model.json",
    "outputs.safetensors",
    "run.json",  # last: without it the rest is nobody's
)


def default_folder(run: RunConfig) -> str:
    data = Path(run.data).resolve().stem
    name = f"{data}-{run.labeled}-{run.test}-{run.method}-{run.seed}"
    return str(Path("runs") / re.sub(r"[^\w.-]+", "_", name))


def check_folder(folder: Path, config: dict[str, Any], options: Options) -> dict[str, Any] | None:
    """Refuse a folder that cannot be used, changing nothing in it. Returns the description of a run to be resumed."""
    if options.resume and options.overwrite:
        raise UserError("--resume and --overwrite exclude each other.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file, not a folder.")
    _check_writable(folder)
    if not any(not path.name.startswith(".") for path in folder.iterdir()):
        return None
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} holds files that are not a run's. Choose another --out.")
    if options.resume:
        about = read_run(folder)
        refuse_difference(folder, about["config"], config)
        return about
    if not options.overwrite:
        raise UserError(f"{folder} holds a run already: go on with it by --resume, or replace it by --overwrite.")
    return None


def refuse_difference(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    difference = config_difference(stored, now)
    if difference:
        lines = "\n  ".join(difference)
        raise UserError(
            f"{folder} holds a run with other settings (stored → now):\n  {lines}\nUse the same, or another --out."
        )


def refuse_other_data(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """A run goes on with the images it began with."""
    difference = config_difference(stored["domains"], now["domains"])
    if difference or stored["classes"] != now["classes"]:
        lines = "\n  ".join(difference or ["the classes differ"])
        raise UserError(
            f"The images are not those that the run in {folder} began with (stored → now):\n  {lines}\n"
            "Restore them, or start a new run in another --out."
        )


def clear(folder: Path) -> None:
    """Remove a run's own files and nothing else."""
    for name in ("checkpoints", "snapshots"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in folder.glob(".*.part"):
        path.unlink()
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)


def read_run(folder: Path) -> dict[str, Any]:
    try:
        about = read_json(folder / "run.json")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{folder / 'run.json'} was not written by this program (format {FORMAT}).")
    return about


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror}. Choose another --out.") from error
