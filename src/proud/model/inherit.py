"""The settings of a finished run as defaults of one that starts from its model. Imports no torch."""

from __future__ import annotations

from dataclasses import replace
from os.path import realpath
from pathlib import Path

from proud.config import RunConfig
from proud.model.format import read_run
from proud.text import nfc


def inherited(folder: str) -> RunConfig:
    """Data, sites, network and method of the run. Sites that were found in a pool are found again."""
    about = read_run(Path(folder))
    run = RunConfig.from_stored(about["config"])
    spec = about["model"]
    if run.data == "python":  # the images were passed to `fit`: new ones must be named
        return RunConfig(method=run.method, model=spec["name"], size=spec["size"], square=run.square, start_from=folder)
    domains = about["task"]["domains"]
    sites = [name for name, each in domains.items() if each.get("role") == "unlabeled" and not each.get("found")]
    named = tuple(name for name in sites if not _is_added(run, name))
    return replace(
        run, unlabeled=named or tuple(sites), model=spec["name"], size=spec["size"], weights="auto", start_from=folder
    )


def _is_added(run: RunConfig, name: str) -> bool:
    """Whether `add`, which is inherited, too, names this domain: it need not be named twice."""
    place = realpath(Path(run.root or run.data, name))
    return any(nfc(site) == name or realpath(site) == place for site in run.add)
