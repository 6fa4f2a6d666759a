"""`proud label-next`: the images of each unlabeled site whose labels would help a run most, as a table to fill in."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from proud import ops
from proud.config import MAX_PIXELS, NOTHING, ReadSpec, RunConfig
from proud.data.added import POOL
from proud.data.source import TaskSource, find_task
from proud.data.task import read_task
from proud.data.types import Task, UnlabeledDomain
from proud.errors import UserError
from proud.files import check_output, is_stdout, write_table
from proud.model.evaluate import find_data
from proud.model.format import other_images, read_run
from proud.model.label_table import COLUMNS, earlier_rows, refuse_own_labels
from proud.model.load import load_model
from proud.model.predict import Model
from proud.nets.sites import with_found_sites
from proud.text import some
from proud.trust.calibration import probabilities
from proud.trust.fitted import to_prototypes
from proud.trust.label_next import choose_images


class Pick(NamedTuple):
    """An image whose label would help."""

    path: str
    guess: str
    doubt: float
    content: str
    image: np.ndarray
    """uint8 [3,S,S]"""


def suggest(
    folder: Path,
    out: Path,
    *,
    k: int = 20,
    data: str = "",
    root: str = "",
    overwrite: bool = False,
    skip_bad: bool = False,
    follow_links: bool = False,
    max_pixels: int = MAX_PIXELS,
    device: str = "auto",
    progress: bool = False,
) -> dict[str, list[Pick]]:
    """Write the table; returns the images of each site."""
    if k < 1:
        raise UserError(f"--k must be at least 1, got {k}.")
    model = load_model(folder, device)
    refuse_own_labels(out, model.config)
    if not is_stdout(out):
        check_output(out, overwrite)
    reading = ReadSpec(skip_bad=skip_bad, follow_links=follow_links, max_pixels=max_pixels)
    task = run_task(model, folder, data, root, reading, progress)
    rows, picks = earlier_rows(model.config), {}
    for domain in task.training.unlabeled:
        paths = task.evaluation.audits[domain.name].paths
        features, guess, doubt = judge(model, domain)
        picks[domain.name] = [
            Pick(
                paths[row],
                model.classes[int(guess[row])],
                float(doubt[row]),
                domain.ids[row],
                domain.images[row].numpy(),
            )
            for row in choose_images(features, doubt, k, domain.known).tolist()
        ]
        rows += [[one.path, domain.name, "", one.guess, f"{one.doubt:.4f}", one.content] for one in picks[domain.name]]
    write_table(out, COLUMNS, rows)
    return picks


def run_task(model: Model, folder: Path, data: str, root: str, reading: ReadSpec, progress: bool = False) -> Task:
    """The run's own unlabeled images, with the labels that it was given."""
    about, source = read_run(folder), run_source(model, folder, data, root, reading)
    task = read_task(source, model.spec.size, progress=progress, disk="auto")
    run = RunConfig.from_stored(about["config"])
    state = load_model(run.start_from, "cpu").net.state_dict() if run.unlabeled_pool and run.start_from else None
    task = with_found_sites(task, source, run, model.spec, state, "auto")
    if other := other_images(about["task"], task.report):
        where = f"{some(other)} in {source.spec.data}"
        text = f"The images of {where} differ from those that the run in {folder} was trained on."
        warnings.warn(text, stacklevel=2)
    return task


def run_source(model: Model, folder: Path, data: str, root: str, reading: ReadSpec) -> TaskSource:
    """The run's own images, found and not yet read. The test domain is left alone."""
    about = read_run(folder)
    data, root = find_data(about["config"], data, root)
    run = RunConfig.from_stored(about["config"])
    every = {name: each for name, each in about["task"]["domains"].items() if each["role"] == "unlabeled"}
    if not every:
        raise UserError(f"The run in {folder} has no unlabeled site: there is nothing to choose from.")
    unlabeled = [name for name, each in every.items() if not each.get("found")] or [POOL]  # never all, as without any
    spec = replace(
        run,
        data=data,
        root=root,
        test=NOTHING,
        unlabeled=tuple(unlabeled),
        square=model.spec.square,
        skip_bad=reading.skip_bad or run.skip_bad,
        follow_links=reading.follow_links or run.follow_links,
        max_pixels=max(reading.max_pixels, run.max_pixels),
    )
    source = find_task(spec)
    if source.roles.classes != model.classes:
        raise UserError(f"The classes of {data} differ from those that the model in {folder} was trained on.")
    return source


def judge(model: Model, domain: UnlabeledDomain) -> tuple[Tensor, Tensor, Tensor]:
    """Features, guessed class and uncertainty, computed as in training."""
    features, logits = model.outputs(domain.images)
    found = model.prototypes or {}
    near = to_prototypes(features, found, domain.name) if f"site/{domain.name}" in found else None
    distances, present = (None, None) if near is None else (near[0], near[2])
    return features, *judge_outputs(model, logits, distances, present)


def judge_outputs(
    model: Model, logits: Tensor, distances: Tensor | None, present: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Guessed class and uncertainty of a site's images: by the distances to the site's prototypes, with or without the
    classifier, or, without distances, by the classifier alone. [N,K], [N,K], [K] -> [N], [N]."""
    if distances is None or present is None or model.prototypes is None:
        probs = probabilities(logits, model.trust.temperature if model.trust else 1.0)
        return probs.argmax(1), -(probs * probs.clamp_min(1e-12).log()).sum(1)
    tau, settings = model.prototypes["tau"], model.config.get("method_config", {})
    if share := settings.get("classifier"):
        guess, doubt, _ = ops.consensus(distances.unsqueeze(0), probabilities(logits), tau, present, share)
        return guess, doubt
    return distances.masked_fill(~present, torch.inf).argmin(1), ops.uncertainty(distances, tau, present)
