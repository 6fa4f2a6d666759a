"""A saved model's answers about the images of many sites, ordered and explained: fills an `Atlas`.

Images are decoded piece by piece, and their features are kept on disk.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proud import ops
from proud.model.answers import AnswerOptions, assess_logits
from proud.model.atlas import NEAREST, Atlas, AtlasSite, empty_columns
from proud.model.feature_store import FeatureStore, trim_stores
from proud.model.format import read_verdicts, run_folder
from proud.model.groups import Group, find_groups, part_of
from proud.model.label_next import judge_outputs
from proud.model.load import load_model
from proud.model.predict import Model
from proud.model.reading import Reading
from proud.model.seen import added_contents
from proud.text import some
from proud.trust.calibration import probabilities
from proud.trust.fitted import to_prototypes
from proud.trust.label_next import choose_images

LARGEST_POOL = 10_000
"""of a larger site, the images to label next are chosen among its most uncertain ones"""
MEANS_TAU = 0.1
"""temperature of the distances to class means"""


def survey(
    folder: Path,
    folders: Sequence[Path] = (),
    *,
    cache: Path,
    data: str = "",
    root: str = "",
    k: int = 20,
    device: str = "auto",
    progress: bool = False,
) -> Atlas:
    """Look at the run's unlabeled sites, or at these folders. `k`: images to label next, per site."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = load_model(folder, device)
        groups = find_groups(model, folder, folders, data, root, progress)
        store = FeatureStore(cache / network_digest(model), model.net.num_features, len(model.classes))
        with store.writing():
            groups = [only_readable(group, fill(model, store, group, progress)) for group in groups]
        trim_stores(cache, store.folder)
        atlas = describe(model, folder, groups, store, k)
    notices = tuple(str(each.message) for each in caught if each.category is UserWarning)
    return replace(atlas, notices=(*model.warnings, *notices))


def network_digest(model: Model) -> str:
    """Changes with everything that decides the features of an image."""
    digest = hashlib.sha256(repr(model.spec).encode())
    for name, tensor in sorted(model.net.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


# ---- features


def fill(model: Model, store: FeatureStore, group: Group, progress: bool) -> set[int]:
    """Compute what the store lacks; returns the rows that cannot be read."""
    missing = [at for at, content in enumerate(group.contents) if content not in store.places]
    if not missing:
        return set()
    reading = Reading([group.sources[at] for at in missing], model.pixels, skip_bad=True, progress=progress)
    found: set[int] = set()
    for rows, images in reading.pieces():
        places = [missing[row] for row in rows]
        features, logits = model.outputs(images)
        store.add([group.contents[at] for at in places], features.numpy(), logits.numpy())
        found.update(places)
    return set(missing) - found


def only_readable(group: Group, bad: set[int]) -> Group:
    if not bad:
        return group
    names = some(group.locations[at] for at in sorted(bad))
    warnings.warn(f"{group.name}: unreadable images are left out ({len(bad)}): {names}", stacklevel=2)
    return part_of(group, [at for at in range(len(group.contents)) if at not in bad])


# ---- answers


def describe(model: Model, folder: Path, groups: Sequence[Group], store: FeatureStore, k: int) -> Atlas:
    labeled = next((group for group in groups if group.truth), None)
    centres = class_centres(model, store, labeled)
    known = added_contents(model.config)
    verdicts = {site["name"]: site for site in read_verdicts(run_folder(folder))}
    sites, columns, start = [], [], 0
    for number, group in enumerate(groups):
        found = describe_group(model, store, group, centres)
        found["site"][:] = number
        if not group.truth:
            found["suggested"][:] = suggested(store, group, found, k, known)
        verdict = verdicts.get(group.name) if group.in_run and not group.truth else None
        sites.append(
            AtlasSite(
                name=group.name,
                start=start,
                stop=start + len(group.contents),
                labeled=bool(group.truth),
                verdict=verdict["verdict"] if verdict else "",
                text=verdict["text"] if verdict else "",
                in_run=group.in_run,
            )
        )
        columns.append(found)
        start += len(group.contents)
    return Atlas(
        classes=model.classes,
        sites=tuple(sites),
        sources=chained(group.sources for group in groups),
        locations=chained(group.locations for group in groups),
        contents=chained(group.contents for group in groups),
        columns={name: np.concatenate([found[name] for found in columns]) for name in columns[0]},
        exemplars=exemplars(columns[-1], sites[-1], len(model.classes)) if labeled else [[] for _ in model.classes],
        store=store.folder,
        width=model.net.num_features,
    )


def describe_group(
    model: Model, store: FeatureStore, group: Group, centres: dict[str, Tensor] | None
) -> dict[str, np.ndarray]:
    """All columns of one group, except its number and the images to label next."""
    columns = empty_columns(len(group.contents))
    rows = columns["row"][:] = np.array([store.places[content] for content in group.contents], dtype=np.int64)
    if group.truth:
        columns["truth"][:] = group.truth
    by_site = f"site/{group.name}" in (model.prototypes or {})
    logits = (
        torch.from_numpy(np.concatenate([*store.logits(rows)])) if len(rows) else torch.empty(0, len(model.classes))
    )
    distances = torch.empty(len(rows), len(model.classes))
    present = torch.ones(len(model.classes), dtype=torch.bool)
    start = 0
    for piece in store.features(rows):
        part = slice(start, start + len(piece))
        features, start = torch.from_numpy(piece), part.stop
        found = assess_logits(model, logits[part], AnswerOptions())
        columns["guess"][part], columns["confidence"][part] = found["label"], found["confidence"]
        columns["abstain"][part] = found.get("abstain", False)
        if centres is not None:
            distances[part], present = distances_to(features, centres, group.name if by_site else "")
    _, doubt = judge_outputs(model, logits, distances if by_site else None, present if by_site else None)
    columns["doubt"][:] = doubt.numpy()
    if centres is not None:
        compare(columns, probabilities(logits), distances.masked_fill(~present, 2.0), centres["tau"])
    return columns


def distances_to(features: Tensor, centres: dict[str, Tensor], site: str) -> tuple[Tensor, Tensor]:
    """To the prototypes of a site or, without one, to the merged ones; and which there are. [N,d] -> [N,K], [K]."""
    if site:
        distances, _, present = to_prototypes(features, centres, site)
        return distances, present
    aligned = torch.nn.functional.normalize(features, dim=1) - centres["center"]
    return ops.cosine_distance(aligned, centres["merged"]), centres["merged"].abs().sum(1) > 0


def compare(columns: dict[str, np.ndarray], probs: Tensor, distances: Tensor, tau: Tensor) -> None:
    """Classifier against prototypes. [N,K], [N,K]."""
    near = distances.topk(min(NEAREST, distances.shape[1]), dim=1, largest=False)
    columns["near"][:, : near.indices.shape[1]] = near.indices.numpy()
    columns["near_distance"][:, : near.indices.shape[1]] = near.values.numpy()
    columns["prototype"][:] = near.indices[:, 0].numpy()
    by_prototypes = (-distances / tau).softmax(1)
    columns["disagreement"][:] = ((probs - by_prototypes).abs().sum(1) / 2).numpy()
    own = np.where(columns["truth"] >= 0, columns["truth"], columns["guess"])
    columns["distance"][:] = distances.gather(1, torch.from_numpy(own).long()[:, None])[:, 0].numpy()


def class_centres(model: Model, store: FeatureStore, labeled: Group | None) -> dict[str, Tensor] | None:
    """The model's prototypes or, for methods without any, the class means of the labeled images."""
    if model.prototypes is not None or labeled is None:
        return model.prototypes
    rows = np.array([store.places[content] for content in labeled.contents], dtype=np.int64)
    truth = torch.tensor(labeled.truth)
    sums, start = torch.zeros(len(model.classes), model.net.num_features), 0
    for piece in store.features(rows):
        unit = torch.nn.functional.normalize(torch.from_numpy(piece), dim=1)
        sums.index_add_(0, truth[start : start + len(piece)], unit)
        start += len(piece)
    return {"merged": sums, "center": torch.zeros(model.net.num_features), "tau": torch.tensor([MEANS_TAU])}


# ---- which images to look at


def suggested(store: FeatureStore, group: Group, columns: dict[str, np.ndarray], k: int, known: set[str]) -> np.ndarray:
    """The place of each image among the picks of `proud label-next`; -1: not picked. [N]."""
    doubt = torch.from_numpy(columns["doubt"])
    pool = doubt.argsort(descending=True, stable=True)[:LARGEST_POOL].sort().values
    features = torch.from_numpy(np.concatenate([*store.features(columns["row"][pool.numpy()])]))
    labeled = torch.tensor([0 if group.contents[at] in known else -1 for at in pool.tolist()])
    chosen = pool[choose_images(features, doubt[pool], k, labeled)]
    places = np.full(len(group.contents), -1, dtype=np.int32)
    places[chosen.numpy()] = np.arange(len(chosen))
    return places


def exemplars(columns: dict[str, np.ndarray], site: AtlasSite, classes: int) -> list[list[int]]:
    """The labeled images of each class that are nearest to its prototype."""
    order = columns["distance"].argsort(kind="stable")
    return [(site.start + order[columns["truth"][order] == k][:NEAREST]).tolist() for k in range(classes)]


def chained(parts: Iterable[list[Any]]) -> list[Any]:
    return [item for part in parts for item in part]
