"""The run's folder: whose it is, what may be replaced, what it tells about the run."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proud.config import Options, RunConfig, config_difference
from proud.errors import UserError
from proud.methods import METHODS, method_config
from proud.files import probe, read_json, remove_parts, telling_why

FORMAT = "proud-run-1"
LONGEST_NAME = 60  # letters; a folder's name may have 255 bytes
RUN_FILES = (
    "result.json",
    "records.jsonl",
    "timings.jsonl",
    "pseudo_labels.csv",
    "model.safetensors",
    "model.json",
    "outputs.safetensors",
    "prototypes.safetensors",
    "diagnosis.json",
)
"""run.json is not among them: it says whose the rest is, and is replaced in one step."""


def default_folder(run: RunConfig) -> str:
    data = Path(run.data).resolve().stem
    name = f"{data}-{run.labeled}-{run.test}-{run.method}-{run.seed}"
    return str(Path("runs") / re.sub(r"[^\w.-]+", "_", name)[-LONGEST_NAME:])


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


EARLIER = {"proud-plus": {"class_mix": "labeled"}}  # defaults that have changed since there are runs without them


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """A setting that an older run does not name had its default; one that is no more, and was off, had no effect."""
    name, own = str(config.get("method", "")), config.get("method_config", {})
    if not isinstance(own, dict):  # damaged: whoever compares it sees that
        return config
    known = asdict(method_config(name)) | EARLIER.get(name, {}) if name in METHODS else {}
    own = {key: value for key, value in own.items() if value or key in known or not known}
    return asdict(RunConfig()) | config | {"method_config": known | own}


def refuse_difference(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    difference = config_difference(completed(stored), completed(now))
    if difference:
        lines = "\n  ".join(difference)
        raise UserError(
            f"{folder} holds a run with other settings (stored → now):\n  {lines}\nUse the same, or another --out."
        )


def refuse_other_data(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """A run goes on with the images it began with."""
    difference = config_difference(stored["domains"], now["domains"])
    difference += [f"{name}: other images or labels" for name in other_images(stored, now)]
    if difference or stored["classes"] != now["classes"]:
        lines = "\n  ".join(difference or ["the classes differ"])
        raise UserError(
            f"The images are not those that the run in {folder} began with (stored → now):\n  {lines}\n"
            "Restore them, or start a new run in another --out."
        )


def other_images(stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Domains whose images or labels are not those of the run; older runs have kept nothing to know them by."""
    was = stored.get("content")
    if not isinstance(was, dict):
        return []
    return [name for name, digest in now.get("content", {}).items() if was.get(name, digest) != digest]


def clear(folder: Path) -> None:
    """Remove a run's own files and nothing else; run.json stays until a new one takes its place."""
    with telling_why(folder):
        for name in ("checkpoints", "snapshots"):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)  # a checkpoint that stayed would be taken for the new run's
        for name in RUN_FILES:
            (folder / name).unlink(missing_ok=True)
    tidy(folder)


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def tidy(folder: Path) -> None:
    """Remove what killed processes left half-written."""
    for place in (folder, folder / "checkpoints", folder / "snapshots"):
        remove_parts(place)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Two processes must not write one run. The kernel lets go of the folder when the process ends, however it ends."""
    if os.environ.get("RANK", "0") != "0":  # of the processes of one distributed run, the first holds it for all
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another process is writing the run in {folder}. Wait for it, or stop it.") from error
        except OSError:  # a file system without locks: the run goes on without this care
            pass
        yield
    finally:
        os.close(handle)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None where there is none, or none that can be read."""
    try:
        found = read_json(folder / "result.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_run(folder: Path) -> dict[str, Any]:
    try:
        about = read_json(folder / "run.json")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{folder / 'run.json'} was not written by this program (format {FORMAT}).")
    task = about.get("task")
    whole = isinstance(about.get("config"), dict) and isinstance(task, dict) and isinstance(task.get("domains"), dict)
    if not whole or not all(isinstance(domain, dict) for domain in task["domains"].values()):  # type: ignore[index]
        raise UserError(f"{folder / 'run.json'} is damaged: it lacks the run's settings or its data.")
    if not isinstance(about.get("threads", 0), int) or "classes" not in task:  # type: ignore[operator]
        raise UserError(f"{folder / 'run.json'} is damaged: it lacks the run's settings or its data.")
    return about


def _check_writable(folder: Path) -> None:
    try:
        probe(folder)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot write to {folder}: {why}. Choose another --out.") from error
