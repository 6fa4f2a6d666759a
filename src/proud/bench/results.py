"""`results.jsonl`: one line per finished run, with all that a table or a later bench needs. No run has two lines."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proud.bench.plan import Job, Key, Plan
from proud.config import LAST_EPOCHS, ReadSpec, RunConfig, config_difference, flag, flat, method_settings
from proud.errors import UserError
from proud.files import MOST_LINES_BYTES, json_bytes, make_folder, open_own, read_regular, sync_folder, user_errors
from proud.methods import METHODS, method_config
from proud.stamps import sealed
from proud.stored import EpochRecord, ResultRecord, ResultRow, RunRecord, Settings, TaskRecord, TimingRecord
from proud.text import one_line, some
from proud.typed import as_record, parse_lines

FORMAT = "proud-result-2"  # lines of the first version have no checksum
CELL = ("labeled", "test", "unlabeled", "seed")
"""The settings that differ between the runs of one method in one table."""


class Results:
    """The file, safe to append to from several processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[ResultRow]:
        return read_rows(self.path) if self.path.exists() else []

    def done(self) -> set[Key]:
        return {key_of(row) for row in self.rows()}

    def add(self, row: ResultRow) -> bool:
        """Append unless this run has a line already; a partial line of a killed process is removed first."""
        with user_errors(self.path):
            make_folder(self.path.parent)
            return self._add(row)

    def _add(self, row: ResultRow) -> bool:
        with os.fdopen(open_own(self.path, os.O_APPEND), "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):
                file.truncate(len(whole))
            known = parse_rows(whole, self.path)
            if key_of(row) in {key_of(each) for each in known}:
                return False
            check_same_settings(known, {row["method"]: row["config"]}, self.path)  # another bench may have come between
            check_same_images([*known, row])
            file.write(line_of(row))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)
        return True


def line_of(row: ResultRow) -> bytes:
    return json_bytes(sealed({**row}) if row["format"] == FORMAT else row) + b"\n"


def read_rows(path: Path) -> list[ResultRow]:
    try:
        content = read_regular(path, MOST_LINES_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    return parse_rows(content[: content.rfind(b"\n") + 1], path)


def parse_rows(content: bytes, path: Path) -> list[ResultRow]:
    try:
        rows = list(parse_lines(content, ResultRow, FORMAT))
        lines_of = Counter((row["bench"], *key_of(row)) for row in rows)
        if twice := [" ".join(map(str, run)) for run, lines in lines_of.items() if lines > 1]:
            raise ValueError(f"more than one line for {some(twice)}")
        for row in rows:
            json.dumps(row, ensure_ascii=False).encode()  # escapes can decode to invalid text
            if not {row["labeled"], row["test"]} <= set(row["domains"]):
                raise ValueError(f"{row['labeled']} or {row['test']} is not among its domains")
    except ValueError as error:
        raise UserError(f"{path} has lines that are not results of proud bench ({one_line(error)}).") from error
    return rows


def key_of(row: ResultRow) -> Key:
    return Key(row["method"], row["labeled"], row["test"], row["seed"])


def make_row(
    plan: Plan,
    job: Job,
    about: RunRecord,
    result: ResultRecord,
    records: list[EpochRecord],
    timings: list[TimingRecord],
) -> ResultRow:
    """`about`, `result`, `records`, `timings`: what the run's folder holds."""
    last: Sequence[Mapping[str, Any]]
    last = [record for record in records[-LAST_EPOCHS:] if record["stage"] == records[-1]["stage"]]
    found: dict[str, Any] = {"format": FORMAT, "bench": plan.bench, "note": plan.note, **job.key._asdict()}
    found |= {"domains": list(plan.domains), "unlabeled": list(job.run.unlabeled)}
    scores = [f"{part}_{score}" for score in ("accuracy", "recall", "scores") for part in ("test", "val")]
    scored: Mapping[str, Any] = result
    found |= {name: scored[name] for name in scores if name in scored}
    for name in ("test_accuracy", "val_accuracy"):
        found[f"{name}_last"] = [record[name] for record in last if name in record]
    found |= {name: scored[name] for name in ("epochs", "domains_first", "domains_last", "warnings") if name in scored}
    seconds = sum(value for timing in timings for value in timing.values() if isinstance(value, float))
    found |= {"seconds": round(seconds, 2), **images_of(about["task"]), "skipped": len(about["task"]["skipped"])}
    found |= {name: about.get(name) for name in ("commit", "code", "versions", "device", "threads")}
    found |= {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "command": command(plan, job)}
    if records and (shared := records[-1].get("shared_with")):
        found["shared"] = {"part": "training", **shared}
    elif records and (shared := records[0].get("shared_with")):
        found["shared"] = {"part": "pretraining", **shared}
    return as_record(found | {"config": portable(plan, job)}, ResultRow)


def command(plan: Plan, job: Job) -> str:
    """The command that makes this run alone, without the place of the data."""
    data = shlex.quote(Path(job.run.data).name)
    line = "proud bench " + (f"{plan.bench} --root ROOT" if job.run.root else data)
    combo = shlex.quote(f"{job.run.labeled}:{job.run.test}")
    line += f" --methods {job.run.method} --seeds {job.run.seed} --combos {combo}"
    line += f" --model {job.run.model}"
    if job.run.weights != RunConfig.weights:
        line += f" --weights {'none' if job.run.weights == 'none' else 'FILE'}"
    for name in ("precision", *(field.name for field in fields(ReadSpec))):
        given = getattr(job.run, name)
        if given != getattr(RunConfig, name):
            line += f" {flag(name)}" + ("" if given is True else f" {given}")
    # an equal budget gives each method its own epochs, and a setting may belong to another method of the bench
    given = plan.overrides | {"epochs": job.settings.epochs}
    return line + "".join(f" --set {key}={value}" for key, value in given.items() if hasattr(job.settings, key))


# ---- images


def images_of(task: TaskRecord) -> dict[str, Any]:
    """How many images each domain has, and digests that distinguish other images under the same names."""
    counts = {name: domain["images"] for name, domain in task["domains"].items()}
    return {"images": counts, "content": task.get("pictures", {})}


def counts_of(row: Mapping[str, Any]) -> dict[str, int]:
    """Of the domains that are not labeled: how many of the labeled images are trained on depends on the seed."""
    names = (name for name in row.get("images", {}) if name != row["labeled"])
    return {f"{'test' if name == row['test'] else 'unlabeled'} {name}": row["images"][name] for name in names}


def check_same_images(rows: Iterable[Mapping[str, Any]], advice: str = "Use another --out.") -> None:
    """All results of a table must be of the same images."""
    seen: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for row in rows:
        for before, now in zip(seen, (row.get("content", {}), counts_of(row)), strict=True):
            other = [key for key, value in now.items() if before.setdefault(key, value) != value]
            if other:
                raise UserError(f"Results are of different images under the same name ({', '.join(other)}). {advice}")


# ---- settings


def portable(plan: Plan, job: Job) -> dict[str, Any]:
    """The run's config without paths of this machine: weights are identified by their content."""
    config = flat(job.run, job.settings) | {"data": plan.data}
    config.pop("root")
    if config["weights"] not in ("auto", "none"):
        config["weights"] = weights_name(config["weights"])
    return config


_WEIGHTS: dict[str, str] = {}


def weights_name(path: str) -> str:
    if path not in _WEIGHTS:
        try:
            with Path(path).open("rb") as file:
                _WEIGHTS[path] = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
        except OSError as error:
            raise UserError(f"--weights {path}: {error.strerror}.") from error
    return _WEIGHTS[path]


BUILT_IN = {"joint_forward": True, "dapp_bn": "domain", "pml_views": "originals", "surgery": "agr-sum"}
"""Settings of earlier results that no longer exist, and the values that are now built in."""


def settings_of(config: Settings) -> dict[str, Any]:
    """What must be the same in all runs of a method: a setting that a line does not name has its default."""
    name, own = str(config.get("method", "")), method_settings(config)
    known = asdict(method_config(name)) if name in METHODS else {}
    kept = {
        key: value for key, value in own.items() if not known or key in known or value not in (BUILT_IN.get(key), False)
    }
    whole = asdict(RunConfig()) | config | {"method_config": known | kept}
    return {key: value for key, value in whole.items() if key not in CELL and key != "root"}


def check_same_settings(
    rows: Iterable[ResultRow],
    wanted: dict[str, Settings],
    where: Path | str,
    advice: str = "Use the same, or another --out.",
) -> None:
    """`wanted`: method → config. A table does not mix settings, and a cell is never run twice to choose."""
    for row in rows:
        if row["method"] not in wanted:
            continue
        difference = config_difference(settings_of(row["config"]), settings_of(wanted[row["method"]]))
        if difference:
            lines = "\n  ".join(difference)
            raise UserError(
                f"Runs of {row['method']!r} in {where} have other settings (there → now):\n  {lines}\n{advice}"
            )
