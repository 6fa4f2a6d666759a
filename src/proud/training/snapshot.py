"""What a later report needs of a run, in a few megabytes: features, prototypes, pseudo-labels and mixed pairs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from proud.data.types import LabeledDomain, Task, UnlabeledDomain
from proud.training.evaluator import Evaluator, forward_all
from proud.methods.base import Method
from proud.methods.statistics import batch_statistics
from proud.nets.models import ModelSpec, Net
from proud.randomness import Randomness
from proud.files import replacing, write_tensors
from proud.training.gallery import certain_images, pair_origins

MOMENTS = ("first", "middle", "last")
MOST_ROWS = 500
FEATURE_BYTES = 5_000_000  # for all domains and moments together
PAIR_SIDE = 64
OWN_BATCH = 128


def moment_of(epoch: int, epochs: int) -> str | None:
    """Which snapshot, if any, belongs to this epoch of the last stage (counted from 0)."""
    if epoch == epochs - 1:
        return "last"
    return {0: "first", epochs // 2: "middle"}.get(epoch)


def shown_rows(population: int, features: int, domains: int) -> Tensor:
    most = min(MOST_ROWS, FEATURE_BYTES // (len(MOMENTS) * domains * features * 2))
    return torch.linspace(0, population - 1, min(population, most)).long()


def save_snapshot(path: Path, method: Method, task: Task, evaluator: Evaluator, random: Randomness) -> None:
    net, context = method.network(), method.context
    domains: list[tuple[str, LabeledDomain | UnlabeledDomain]] = [("labeled", task.training.labeled)]
    domains += [(f"unlabeled/{domain.name}", domain) for domain in task.training.unlabeled]
    if task.evaluation.test is not None:
        domains.append(("test", task.evaluation.test))
    tensors: dict[str, Tensor] = {}
    for key, domain in domains:
        rows = shown_rows(len(domain.images), net.num_features, len(domains))
        own = key != "test" and len(rows) > 1 and method.own_statistics
        forward = own_statistics if own else forward_all
        features, logits = forward(net, domain.images[rows], context.spec, context.device, context.precision)
        tensors |= {f"{key}/rows": rows, f"{key}/features": features.half(), f"{key}/logits": logits.half()}
        if isinstance(domain, LabeledDomain):
            tensors[f"{key}/labels"] = domain.labels[rows]
        elif domain.name in evaluator.data.audits:
            tensors[f"{key}/truth"] = evaluator.data.audits[domain.name].labels[rows]
    tensors |= _pseudo_labels(method, tensors)
    with torch.no_grad():
        for key, value in method.snapshot(random).items():
            tensors[f"method/{key}"] = _thumbnails(value) if value.ndim == 4 else value
    if "method/pairs/rows" in tensors:
        origins = pair_origins(method, task, tensors["method/pairs/rows"])
        tensors |= {f"method/pairs/{key}": value for key, value in origins.items()}
    if path.stem == MOMENTS[-1]:
        for key, value in certain_images(method, task, tensors, PAIR_SIDE).items():
            tensors[key] = _thumbnails(value) if value.ndim == 4 else value
    for key, value in tensors.items():
        tensors[key] = value.half() if value.dtype == torch.float32 and value.ndim > 1 else value
    with replacing(path) as part:
        write_tensors(part, tensors, "proud-snapshot-1")


def own_statistics(
    net: Net, images: Tensor, spec: ModelSpec, device: torch.device, precision: str
) -> tuple[Tensor, Tensor]:
    """`forward_all` with the domain's own batch statistics, as the prototypes were made that are shown among them."""
    with batch_statistics(net, own=True):
        return forward_all(
            net, images, spec, device, precision, parts=-(-len(images) // OWN_BATCH)
        )  # no small last one


def _pseudo_labels(method: Method, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, pseudo in method.pseudo_labels().items():
        key = f"unlabeled/{name}"
        rows = tensors[f"{key}/rows"].to(pseudo.labels.device)
        found |= {f"{key}/pseudo": pseudo.labels[rows], f"{key}/uncertainty": pseudo.uncertainty[rows]}
        ratio = method.certainty(pseudo.uncertainty[rows])
        if ratio is not None:
            found[f"{key}/ratio"] = ratio
    return found


def _thumbnails(images: Tensor) -> Tensor:
    if images.shape[-1] <= PAIR_SIDE:
        return images
    small = interpolate(
        images.float(), size=(PAIR_SIDE, PAIR_SIDE), mode="bilinear", antialias=True, align_corners=False
    )
    return small.round().clamp(0, 255).to(torch.uint8)
