"""The settings of a finished run as defaults of one that starts from its model. Imports no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proud.config import RunConfig
from proud.model.format import read_run


def inherited(folder: str) -> RunConfig:
    """Data, sites, network and method of the run. Sites that were found in a pool are found again."""
    about = read_run(Path(folder))
    run = RunConfig.from_stored(about["config"])
    spec = about["model"]
    if run.data == "python":  # the images were passed to `fit`: new ones must be named
        return RunConfig(method=run.method, model=spec["name"], size=spec["size"], square=run.square, start_from=folder)
    domains = about["task"]["domains"]
    sites = (name for name, each in domains.items() if each.get("role") == "unlabeled" and not each.get("found"))
    return replace(
        run, unlabeled=tuple(sites), model=spec["name"], size=spec["size"], weights="auto", start_from=folder
    )
