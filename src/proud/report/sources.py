"""The inputs of a report: run folders and bench results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from proud.bench.results import read_rows
from proud.config import RunConfig, method_settings
from proud.errors import UserError
from proud.manifest import MANIFEST, Damaged, Files
from proud.model.format import is_finished, lost_manifest, read_result, read_run, read_verdicts
from proud.report.arrays import LOOK_AT, OUTPUTS, SNAPSHOT, Arrays, check_snapshot, read_arrays
from proud.stored import DomainRecord, EpochRecord, LookAt, ResultRecord, ResultRow, RunRecord
from proud.training.records import epochs_of, timings_of
from proud.training.snapshot import MOMENTS


@dataclass(frozen=True, eq=False)
class RunSource:
    """A run folder, read lazily. Files that the run did not write read as empty."""

    folder: Path
    metadata: RunRecord
    name: str

    @cached_property
    def config(self) -> RunConfig:
        return RunConfig.from_stored(self.metadata["config"])

    @property
    def settings(self) -> dict[str, Any]:
        """The method's."""
        return method_settings(self.metadata["config"])

    @property
    def classes(self) -> list[str]:
        return self.metadata["task"]["classes"]

    @property
    def domains(self) -> dict[str, DomainRecord]:
        return self.metadata["task"]["domains"]

    @property
    def unlabeled(self) -> list[str]:
        return [name for name, domain in self.domains.items() if domain["role"] == "unlabeled"]

    @property
    def combination(self) -> tuple[str, str]:
        return self.config.labeled, self.config.test

    @cached_property
    def records(self) -> list[EpochRecord]:
        return epochs_of(self.folder).read()

    @cached_property
    def seconds(self) -> float:
        timings = timings_of(self.folder).read()
        return sum(value for timing in timings for value in timing.values() if isinstance(value, float))

    @cached_property
    def finished(self) -> bool:
        return is_finished(self.folder)

    @cached_property
    def result(self) -> ResultRecord:
        return read_result(self.folder) or {"epochs": 0}

    @cached_property
    def look_at(self) -> dict[str, list[LookAt]]:
        """Site → its most uncertain images."""
        return {site["name"]: site["look_at"] for site in read_verdicts(self.folder)}

    @cached_property
    def outputs(self) -> Arrays:
        files, name, sizes = Files(self.folder), "outputs.safetensors", {"K": len(self.classes)}
        found = read_arrays(files, name, LOOK_AT | OUTPUTS, sizes)
        answers = [each for each in found if not each.startswith("look_at/")]
        if any(f"{each.partition('/')[0]}/{part}" not in found for each in answers for part in OUTPUTS):
            raise UserError(f"{self.folder / name} is incomplete. Repeat the run to report on it.")
        return found

    @cached_property
    def snapshots(self) -> dict[str, Arrays]:
        """Moment → arrays; a run of one or two epochs has fewer moments."""
        files, sizes = Files(self.folder), {"K": len(self.classes), "T": len(self.unlabeled)}
        found = {}
        for moment in MOMENTS:
            name = f"snapshots/{moment}.safetensors"
            if arrays := read_arrays(files, name, SNAPSHOT, sizes):
                domains = ["labeled", *(f"unlabeled/{name}" for name in self.unlabeled)]
                check_snapshot(self.folder / name, arrays, domains)
                found[moment] = arrays
        return found

    def epoch_of(self, moment: str) -> int:
        """Epoch of the last stage, from 1, as in the paper's figures."""
        last = [record for record in self.records if record["stage"] == self.records[-1]["stage"]]
        epochs = int(self.settings.get("epochs", len(last)))
        return {"first": 1, "middle": epochs // 2 + 1, "last": epochs}[moment]


@dataclass(frozen=True, eq=False)
class BenchSource:
    """Results of one benchmark, from any number of files."""

    name: str
    rows: tuple[ResultRow, ...]


def read_sources(paths: Iterable[Path]) -> tuple[list[RunSource], list[BenchSource]]:
    """Each path is a run folder, a folder of run folders, a bench folder or a results file."""
    folders: list[Path] = []
    files: list[Path] = []
    for path in paths:
        run_folders = find_runs(path)
        if run_folders:
            folders += run_folders
        elif (path / "results.jsonl").is_file():
            files.append(path / "results.jsonl")
        elif path.is_file() and path.suffix == ".jsonl":
            files.append(path)
        elif path.exists():
            raise UserError(f"{path} is neither a run folder, nor a bench folder, nor a results.jsonl file.")
        else:
            raise UserError(f"{path} does not exist.")
    metadata = {folder: read_metadata(folder) for folder in dict.fromkeys(folders)}
    names = short_names({folder: run["config"] for folder, run in metadata.items()})
    return [RunSource(folder, run, names[folder]) for folder, run in metadata.items()], read_benches(files)


def find_runs(path: Path) -> list[Path]:
    if (path / "run.json").is_file():
        return [path]
    if not path.is_dir() or (path / "results.jsonl").is_file():
        return []
    runs = sorted(child for child in path.iterdir() if (child / "run.json").is_file())
    started = [run for run in runs if (run / "records.jsonl").is_file()]
    return started or runs  # runs without a finished epoch are skipped if there are others


def read_metadata(folder: Path) -> RunRecord:
    metadata = read_run(folder)
    if not (folder / "records.jsonl").is_file():
        raise UserError(f"The run in {folder} has no finished epoch yet: nothing to report.")
    if lost_manifest(folder):
        raise Damaged(folder, MANIFEST, "is missing")
    return metadata


def short_names(configs: dict[Path, dict[str, Any]]) -> dict[Path, str]:
    """The method, plus what is needed to distinguish the runs: combination, seed, settings or folder."""
    parts: list[Callable[[dict[str, Any]], str]] = [
        lambda config: f"{config['labeled']} → {config['test']}",
        lambda config: f"seed {config['seed']}",
    ]
    names = {folder: method_name(config) for folder, config in configs.items()}
    for part in parts:
        if len(set(names.values())) == len(names):
            break
        if len({part(config) for config in configs.values()}) > 1:
            names = {folder: f"{name}, {part(configs[folder])}" for folder, name in names.items()}
    for name in [name for name, count in Counter(names.values()).items() if count > 1]:
        same = {folder: configs[folder] for folder in names if names[folder] == name}
        suffix = differing_settings(same)
        if len(set(suffix.values())) < len(same):
            suffix = {folder: folder.name for folder in same}
        names |= {folder: f"{name} ({suffix[folder]})" for folder in same}
    return names


def differing_settings(configs: dict[Path, dict[str, Any]]) -> dict[Path, str]:
    """Settings that differ between runs of one method, at most three: `alpha 0.1, views 1`."""
    settings = {folder: config.get("method_config", {}) for folder, config in configs.items()}
    keys = [key for key in next(iter(settings.values())) if len({str(s.get(key)) for s in settings.values()}) > 1]
    return {folder: ", ".join(f"{key} {own.get(key)}" for key in keys[:3]) for folder, own in settings.items()}


def method_name(config: dict[str, Any]) -> str:
    """The method, with the parts of ProUD that flags turned off."""
    settings = config.get("method_config", {})
    name = str(config["method"])
    off = {
        "UDMix": name == "proud" and settings.get("udmix") is False,
        "PML": settings.get("pml") is False or settings.get("alpha") == 0,
    }
    without = [part for part in off if off[part]]
    return name if name.startswith("proud-no") or not without else f"{name} without {' and '.join(without)}"


def read_benches(files: Iterable[Path]) -> list[BenchSource]:
    rows: dict[str, list[ResultRow]] = {}
    for path in files:
        for row in read_rows(path):
            rows.setdefault(row["bench"], []).append(row)
    return [BenchSource(name, tuple(rows[name])) for name in rows]
