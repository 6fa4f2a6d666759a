"""Sites without names: unlabeled images of unknown origin, grouped by their style.

The style of an image is the mean and the spread of each channel in two early layers of the network before training:
colours, contrast and texture, hardly its class. K-means on the principal components gives the number of sites, the
one whose groups are best separated; a Gaussian mixture then assigns the images, because sites differ in spread, too.
Groups that are too small for a site are given to the others.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proud import ops
from proud.config import NOTHING, RunConfig
from proud.data.added import POOL, SMALLEST_SITE, refuse_too_many_sites, unused_name
from proud.data.cache import NEVER, cache_folder, part_of
from proud.data.labels import add_labels
from proud.data.source import TaskSource
from proud.data.task import digest
from proud.data.types import Audit, Task, UnlabeledDomain
from proud.nets.models import ModelSpec, Net, build_net
from proud.stored import DomainRecord, PoolRecord, TaskRecord

COMPONENTS = 8
LEAST_SEPARATION = 0.25  # silhouette; chosen on development cells, where single sites stay below it
MOST_FOUND = 8  # sites, unless more are asked for
SMALLEST_SHARE = 0.05  # of the pool, unless the number of sites is given
MOST_FITS = 5  # of the mixture, each without the odd images of the one before
FITTED, SCORED = 5000, 2000  # images that the groups are fitted on, and their separation is measured on
EXAMPLES = 3


def with_found_sites(
    task: Task, source: TaskSource, run: RunConfig, spec: ModelSpec, state: Any = None, disk: str = NEVER
) -> Task:
    """The task with its pool divided into sites. `state`: the weights that training starts from, if not `run.weights`.
    `disk`: as for `read_task`.

    The same images, network and seed give the same sites."""
    if not run.unlabeled_pool:
        return task
    pool = next(domain for domain in task.training.unlabeled if domain.name == POOL)
    net = build_net(spec, run.weights if state is None else NOTHING, run.seed)
    if state is not None:
        net.load_state_dict(state)
    groups, separation = group(styles(net, pool.images, spec), run.sites, run.seed)
    folder = cache_folder(disk, pool.images.numel()) if task.report.get("mapped_from_cache") else None
    found = divide(task, pool, groups, folder)
    about: PoolRecord = {"images": len(pool), "sites": int(groups.max()) + 1, "separation": separation}
    found = replace(found, report={**found.report, "pool": about})
    if text := _unlike_asked(about["sites"], run.sites):
        warnings.warn(text, stacklevel=2)
    return add_labels(found, source.labels, run.labels) if source.labels else found


def _unlike_asked(found: int, asked: str) -> str:
    """A warning if the pool could not be divided, or not into so many sites."""
    if asked == "auto":
        one = "The images of the pool do not fall into distinct groups: they are used as one site."
        return f"{one} --sites K divides them nevertheless." if found == 1 else ""
    if found == int(asked):
        return ""
    return (
        f"--sites {asked}: the pool has only {found} {'site' if found == 1 else 'sites'} of at least {SMALLEST_SITE} "
        "images; the images of smaller groups are in the sites that are most like them."
    )


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
    refuse_too_many_sites(sites, count)
    spread = vectors.std(0)
    scaled = (vectors - vectors.mean(0)) / np.where(spread > 0, spread, 1)
    width = min(2 * COMPONENTS, count, scaled.shape[1])
    points = PCA(width, random_state=seed % 2**32).fit_transform(scaled)
    some = points[:: -(-count // FITTED)]  # the images are in the order of their hashes
    number = int(sites) if sites != "auto" else _number_of_sites(some, seed)
    if number == 1:
        return np.zeros(count, dtype=np.int64), None
    least = SMALLEST_SITE if sites != "auto" else _smallest_found(count)
    mixture = _mixture(some[:, :COMPONENTS], number, least * len(some) / count, seed)
    labels = _by_size(_likeliest(_log_likelihoods(mixture, points[:, :COMPONENTS]), least))
    return labels, round(_silhouette(points, labels), 3) if labels.max() else None


def _number_of_sites(points: np.ndarray, seed: int) -> int:
    best, separation = 1, LEAST_SEPARATION
    for number in range(2, MOST_FOUND + 1):
        if number * SMALLEST_SITE > len(points):
            break
        labels = _k_means(points, number, seed)
        if np.bincount(labels, minlength=number).min() < _smallest_found(len(points)):
            continue
        found = _silhouette(points, labels)
        if found > separation:
            best, separation = number, found
    return best


def _smallest_found(count: int) -> float:
    """Images of the smallest site, if the number of sites is to be found."""
    return max(SMALLEST_SITE, SMALLEST_SHARE * count)


def _likeliest(likelihoods: np.ndarray, least: float) -> np.ndarray:
    """The site of each image [N]: the smallest site goes to the others until each has at least `least` images."""
    left = likelihoods.copy()
    while True:
        labels = left.argmax(1)
        sites, sizes = np.unique(labels, return_counts=True)
        if len(sites) == 1 or sizes.min() >= least:
            return labels
        left[:, sites[sizes.argmin()]] = -np.inf


def _by_size(labels: np.ndarray) -> np.ndarray:
    """Numbered anew, the largest site first."""
    sizes = np.bincount(labels)
    rank = np.empty_like(sizes)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[labels]


def _k_means(points: np.ndarray, number: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans  # noqa: PLC0415

    return KMeans(number, n_init=5, random_state=seed % 2**32).fit_predict(points)


def _silhouette(points: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    step = -(-len(points) // SCORED)
    rows = [np.flatnonzero(labels == number) for number in range(int(labels.max()) + 1)]
    some = np.concatenate([mine[:: max(1, min(step, len(mine) // SMALLEST_SITE))] for mine in rows])
    return float(silhouette_score(points[some], labels[some]))


def _mixture(points: np.ndarray, number: int, least: float, seed: int) -> Any:
    """Fitted again without the images of groups below `least`, while enough are left: a few odd images are no site."""
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    for _ in range(MOST_FITS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few images may not converge; their groups are usable
            found = GaussianMixture(number, reg_covar=1e-3, n_init=2, random_state=seed % 2**32).fit(points)
        labels = found.predict(points)
        kept = points[np.bincount(labels)[labels] >= least]
        if len(kept) == len(points) or len(kept) < number * least:
            break
        points = kept
    return found


def _log_likelihoods(mixture: Any, points: np.ndarray) -> np.ndarray:
    """Of each image in each site, with its weight, up to a constant. Probabilities would be 0 far away. [N,K]."""
    found = []
    for weight, mean, root in zip(mixture.weights_, mixture.means_, mixture.precisions_cholesky_, strict=True):
        distances = (((points - mean) @ root) ** 2).sum(1)
        found.append(np.log(weight) + np.log(np.diag(root)).sum() - distances / 2)
    return np.stack(found, 1)


# ---- the task


def divide(task: Task, pool: UnlabeledDomain, groups: np.ndarray, folder: Path | None = None) -> Task:
    """The pool's place among the unlabeled domains is taken by the sites that were found in it. `folder`: where images
    are mapped from, if they need not fit in memory."""
    audit = task.evaluation.audits[pool.name]
    names: list[str] = []
    for number in range(int(groups.max()) + 1):
        names.append(unused_name(f"site {number + 1}", (*task.report["domains"], *names)))
    parts = {name: np.flatnonzero(groups == number).tolist() for number, name in enumerate(names)}
    sites = tuple(_part(pool, name, rows, folder) for name, rows in parts.items())
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


def about_found_sites(task: TaskRecord) -> str:
    """Size and examples of each site of a pool, one a line: whether the groups make sense is for the user to see."""
    return "\n".join(
        f"{name}: {domain['images']} images of the pool, for example {', '.join(domain['examples'])}"
        for name, domain in task["domains"].items()
        if domain.get("found")
    )


def _part(pool: UnlabeledDomain, name: str, rows: list[int], folder: Path | None) -> UnlabeledDomain:
    return UnlabeledDomain(
        name,
        part_of(pool.images, rows, folder),
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
