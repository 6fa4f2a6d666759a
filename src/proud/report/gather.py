"""What a report is made from: the folders of runs, and the results of benches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proud.bench.results import Row, read_rows
from proud.errors import UserError
from proud.files import read_json
from proud.training.run_folder import read_run
from proud.training.records import Records
from proud.training.snapshot import MOMENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[Any]"]


@dataclass(frozen=True, eq=False)
class Run:
    """A run's folder, read when asked. Whatever the run did not leave behind is empty."""

    folder: Path
    about: dict[str, Any]
    name: str

    @property
    def config(self) -> dict[str, Any]:
        return self.about["config"]

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.about["task"]["classes"]]

    @property
    def domains(self) -> dict[str, dict[str, Any]]:
        return self.about["task"]["domains"]

    @property
    def unlabeled(self) -> list[str]:
        return [name for name, domain in self.domains.items() if domain["role"] == "unlabeled"]

    @property
    def combination(self) -> tuple[str, str]:
        return self.config["labeled"], self.config["test"]

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        return Records(self.folder / "records.jsonl").read()

    @cached_property
    def seconds(self) -> float:
        timings = Records(self.folder / "timings.jsonl").read()
        return sum(value for timing in timings for value in timing.values() if isinstance(value, float))

    @cached_property
    def result(self) -> dict[str, Any]:
        path = self.folder / "result.json"
        return read_json(path) if path.is_file() else {}

    @cached_property
    def to_look_at(self) -> dict[str, list[dict[str, Any]]]:
        """Site → its most doubtful images: path, label, uncertainty."""
        path = self.folder / "diagnosis.json"
        sites = read_json(path) if path.is_file() else []
        return {site["name"]: site.get("look_at", []) for site in sites if isinstance(site, dict) and "name" in site}

    @cached_property
    def outputs(self) -> Arrays:
        return read_arrays(self.folder / "outputs.safetensors")

    @cached_property
    def snapshots(self) -> dict[str, Arrays]:
        """Moment → arrays; a run of one or two epochs has fewer moments."""
        found = {moment: read_arrays(self.folder / "snapshots" / f"{moment}.safetensors") for moment in MOMENTS}
        return {moment: arrays for moment, arrays in found.items() if arrays}

    def epoch_of(self, moment: str) -> int:
        """Counted from 1 in the last stage, right after pseudo-labeling, as in the paper's figures."""
        last = [record for record in self.records if record["stage"] == self.records[-1]["stage"]]
        epochs = int(self.config["method_config"].get("epochs", len(last)))
        return {"first": 1, "middle": epochs // 2 + 1, "last": epochs}[moment]


@dataclass(frozen=True, eq=False)
class Bench:
    """Results of one benchmark, from any number of files."""

    name: str
    rows: tuple[Row, ...]
    sources: tuple[str, ...]


def read_arrays(path: Path) -> Arrays:
    if not path.is_file():
        return {}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}. The run must be repeated for its report.") from error
    return {key: value.astype(np.float32) if value.dtype == np.float16 else value for key, value in found.items()}


def gather(paths: Iterable[Path]) -> tuple[list[Run], list[Bench]]:
    """Each path is a run's folder, a folder of runs, a bench's folder, or a results file."""
    folders: list[Path] = []
    files: list[Path] = []
    for path in paths:
        found = runs_in(path)
        if found:
            folders += found
        elif (path / "results.jsonl").is_file():
            files.append(path / "results.jsonl")
        elif path.is_file() and path.suffix == ".jsonl":
            files.append(path)
        elif path.exists():
            raise UserError(f"{path} is neither a run's folder, nor a bench's, nor a results.jsonl file.")
        else:
            raise UserError(f"{path} does not exist.")
    about = {folder: checked(folder) for folder in dict.fromkeys(folders)}
    names = short_names(about)
    return [Run(folder, each, names[folder]) for folder, each in about.items()], benches(files)


def runs_in(path: Path) -> list[Path]:
    if (path / "run.json").is_file():
        return [path]
    if not path.is_dir() or (path / "results.jsonl").is_file():
        return []
    runs = sorted(child for child in path.iterdir() if (child / "run.json").is_file())
    begun = [run for run in runs if (run / "records.jsonl").is_file()]
    return begun or runs  # one that has not finished an epoch does not keep the others from being shown


def checked(folder: Path) -> dict[str, Any]:
    about = read_run(folder)
    if not (folder / "records.jsonl").is_file():
        raise UserError(f"The run in {folder} has no finished epoch yet: nothing to report.")
    return about


def short_names(about: dict[Path, dict[str, Any]]) -> dict[Path, str]:
    """The method, and as much more as it takes to tell the runs apart."""
    configs = {folder: each["config"] for folder, each in about.items()}
    parts = {
        "combination": lambda config: f"{config['labeled']} → {config['test']}",
        "seed": lambda config: f"seed {config['seed']}",
    }
    names = {folder: method_name(config) for folder, config in configs.items()}
    for part in parts.values():
        if len(set(names.values())) == len(names):
            break
        if len({part(config) for config in configs.values()}) > 1:
            names = {folder: f"{name}, {part(configs[folder])}" for folder, name in names.items()}
    for name in [name for name, count in Counter(names.values()).items() if count > 1]:
        twins = {folder: configs[folder] for folder in names if names[folder] == name}
        more = differing_settings(twins)
        if len(set(more.values())) < len(twins):
            more = {folder: folder.name for folder in twins}
        names |= {folder: f"{name} ({more[folder]})" for folder in twins}
    return names


def differing_settings(configs: dict[Path, dict[str, Any]]) -> dict[Path, str]:
    """What tells runs of one method apart: `alpha 0.1, views 1`; three settings at most."""
    settings = {folder: config.get("method_config", {}) for folder, config in configs.items()}
    keys = [key for key in next(iter(settings.values())) if len({str(s.get(key)) for s in settings.values()}) > 1]
    return {folder: ", ".join(f"{key} {mine.get(key)}" for key in keys[:3]) for folder, mine in settings.items()}


def method_name(config: dict[str, Any]) -> str:
    """ProUD's parts can be turned off by flags: say so."""
    settings = config.get("method_config", {})
    off = {"UDMix": settings.get("udmix") is False, "PML": settings.get("pml") is False or settings.get("alpha") == 0}
    without = [part for part in off if off[part]]
    name = str(config["method"])
    return name if name.startswith("proud-no") or not without else f"{name} without {' and '.join(without)}"


def benches(files: Iterable[Path]) -> list[Bench]:
    rows: dict[str, list[Row]] = {}
    sources: dict[str, list[str]] = {}
    for path in files:
        for row in read_rows(path):
            rows.setdefault(row["bench"], []).append(row)
            if str(path) not in sources.setdefault(row["bench"], []):
                sources[row["bench"]].append(str(path))
    return [Bench(name, tuple(rows[name]), tuple(sources[name])) for name in rows]
