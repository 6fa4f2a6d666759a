"""Sites without names: unlabeled images of unknown origin, grouped by their style.

The style of an image is the mean and the spread of each channel in two early layers of the network before training:
colours, contrast and texture, hardly its class. K-means on the principal components gives the number of sites, the
one whose groups are best separated; a Gaussian mixture then assigns the images, because sites differ in spread, too.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proud import ops
from proud.config import NOTHING, RunConfig
from proud.data.added import POOL, unused_name
from proud.data.labels import add_labels
from proud.data.source import TaskSource
from proud.data.task import digest
from proud.data.types import Audit, Task, UnlabeledDomain
from proud.errors import UserError
from proud.nets.models import ModelSpec, Net, build_net
from proud.stored import DomainRecord, PoolRecord, TaskRecord

COMPONENTS = 8
LEAST_SEPARATION = 0.25  # silhouette; chosen on development cells, where single sites stay below it
MOST_FOUND = 8  # sites, unless more are asked for
SMALLEST_SHARE, SMALLEST_SITE = 0.05, 16  # of the pool, and images
FITTED, SCORED = 5000, 2000  # images that the groups are fitted on, and their separation is measured on
EXAMPLES = 3


def with_found_sites(task: Task, source: TaskSource, run: RunConfig, spec: ModelSpec, state: Any = None) -> Task:
    """The task with its pool divided into sites. `state`: the weights that training starts from, if not `run.weights`.

    The same images, network and seed give the same sites."""
    if not run.unlabeled_pool:
        return task
    pool = next(domain for domain in task.training.unlabeled if domain.name == POOL)
    net = build_net(spec, run.weights if state is None else NOTHING, run.seed)
    if state is not None:
        net.load_state_dict(state)
    groups, separation = group(styles(net, pool.images, spec), run.sites, run.seed)
    found = divide(task, pool, groups)
    about: PoolRecord = {"images": len(pool), "sites": int(groups.max()) + 1, "separation": separation}
    found = replace(found, report={**found.report, "pool": about})
    if about["sites"] == 1 and run.sites == "auto":
        warnings.warn(
            "The images of the pool do not fall into distinct groups: they are used as one site. --sites K divides "
            "them nevertheless.",
            stacklevel=2,
        )
    return add_labels(found, source.labels, run.labels) if source.labels else found


# ---- styles


@torch.no_grad()
def styles(net: Net, images: Tensor, spec: ModelSpec) -> np.ndarray:
    """Channel means and log spreads in the first convolution and one a fifth of the way into the network. [N,S]."""
    found: dict[int, Tensor] = {}
    convolutions = [module for module in net.backbone.modules() if isinstance(module, nn.Conv2d)]
    chosen = sorted({0, max(1, len(convolutions) // 5)}) if len(convolutions) > 1 else range(len(convolutions))

    def keep(place: int) -> Any:
        def hook(module: nn.Module, given: Any, out: Tensor) -> None:
            found[place] = out
            if place == chosen[-1]:
                raise _Enough

        return hook

    handles = [convolutions[place].register_forward_hook(keep(place)) for place in chosen]
    rows = []
    try:
        for part in images.split(128):
            x = ops.evaluation_view(part, spec.size, spec.mean, spec.std)
            found.clear()
            with suppress(_Enough):
                net.eval().backbone(x)
            maps = [found[place] for place in chosen if place in found] or [x]
            rows.append(torch.cat([_statistics(each) for each in maps], 1))
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat(rows).double().numpy()


class _Enough(Exception):
    """The layers after the last that is looked at need not be computed."""


def _statistics(maps: Tensor) -> Tensor:
    variance, mean = torch.var_mean(maps.flatten(2), 2, correction=0)
    return torch.cat([mean, variance.add(1e-6).log() / 2], 1)


# ---- groups


def group(vectors: np.ndarray, sites: str, seed: int) -> tuple[np.ndarray, float | None]:
    """The site of each image [N], the largest first, and how well the sites are separated (silhouette, at most 1).

    The mean silhouette of a single site is not defined: None."""
    from sklearn.decomposition import PCA  # noqa: PLC0415

    count = len(vectors)
    if sites != "auto" and int(sites) > max(1, count // SMALLEST_SITE):
        raise UserError(f"--sites {sites}: {count} images are too few, with at least {SMALLEST_SITE} for each site.")
    spread = vectors.std(0)
    scaled = (vectors - vectors.mean(0)) / np.where(spread > 0, spread, 1)
    width = min(2 * COMPONENTS, count, scaled.shape[1])
    points = PCA(width, random_state=seed % 2**32).fit_transform(scaled)
    some = points[:: -(-count // FITTED)]  # the images are in the order of their hashes
    number, separation = (int(sites), None) if sites != "auto" else _number_of_sites(some, seed)
    if number == 1:
        return np.zeros(count, dtype=np.int64), None
    labels = _mixture(some[:, :COMPONENTS], number, seed).predict(points[:, :COMPONENTS])
    sizes = np.bincount(labels, minlength=number)
    order = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
    rank = np.zeros(number, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[labels], separation


def _number_of_sites(points: np.ndarray, seed: int) -> tuple[int, float | None]:
    best, separation = 1, LEAST_SEPARATION
    for number in range(2, MOST_FOUND + 1):
        if number * SMALLEST_SITE > len(points):
            break
        labels = _k_means(points, number, seed)
        if np.bincount(labels, minlength=number).min() < max(SMALLEST_SITE, SMALLEST_SHARE * len(points)):
            continue
        found = _silhouette(points, labels)
        if found > separation:
            best, separation = number, found
    return best, round(separation, 3) if best > 1 else None


def _k_means(points: np.ndarray, number: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans  # noqa: PLC0415

    return KMeans(number, n_init=5, random_state=seed % 2**32).fit_predict(points)


def _silhouette(points: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    step = -(-len(points) // SCORED)
    return float(silhouette_score(points[::step], labels[::step]))


def _mixture(points: np.ndarray, number: int, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few images may not converge; their groups are usable
        return GaussianMixture(number, reg_covar=1e-3, n_init=2, random_state=seed % 2**32).fit(points)


# ---- the task


def divide(task: Task, pool: UnlabeledDomain, groups: np.ndarray) -> Task:
    """The pool's place among the unlabeled domains is taken by the sites that were found in it."""
    audit = task.evaluation.audits[pool.name]
    names: list[str] = []
    for number in range(int(groups.max()) + 1):
        names.append(unused_name(f"site {number + 1}", (*task.report["domains"], *names)))
    parts = {name: np.flatnonzero(groups == number).tolist() for number, name in enumerate(names)}
    sites = tuple(_part(pool, name, rows) for name, rows in parts.items())
    audits = {name: _part_of_audit(audit, name, rows) for name, rows in parts.items()}
    others = tuple(domain for domain in task.training.unlabeled if domain is not pool)
    evaluation = task.evaluation
    kept = {name: each for name, each in evaluation.audits.items() if name != pool.name}
    return replace(
        task,
        training=replace(task.training, unlabeled=(*others, *sites)),
        evaluation=replace(evaluation, audits=kept | audits),
        report=_report(task.report, pool.name, sites, audits),
    )


def _part(pool: UnlabeledDomain, name: str, rows: list[int]) -> UnlabeledDomain:
    return UnlabeledDomain(
        name,
        pool.images[rows],
        tuple(pool.ids[row] for row in rows),
        None if pool.known is None else pool.known[rows],
    )


def _part_of_audit(audit: Audit, name: str, rows: list[int]) -> Audit:
    return Audit(name, audit.labels[rows], tuple(audit.paths[row] for row in rows))


def _report(report: TaskRecord, pool: str, sites: tuple[UnlabeledDomain, ...], audits: dict[str, Audit]) -> TaskRecord:
    """Sizes and examples of the sites, for run.json and for a check on resuming."""
    found: dict[str, DomainRecord] = {
        site.name: {
            "role": "unlabeled",
            "images": len(site),
            "audited": audits[site.name].known,
            "found": True,
            "examples": list(audits[site.name].paths[:EXAMPLES]),
        }
        for site in sites
    }
    contents = {site.name: digest(site.ids) for site in sites}
    domains = {name: about for name, about in report["domains"].items() if name != pool}
    content, pictures = (
        {name: value for name, value in report[key].items() if name != pool} for key in ("content", "pictures")
    )
    return {**report, "domains": domains | found, "content": content | contents, "pictures": pictures | contents}
