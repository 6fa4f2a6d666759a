"""Images for people to look at: the most and least certain ones of each domain, and what mixed pairs really show."""

from __future__ import annotations

import torch
from torch import Tensor

from proud import ops
from proud.data.types import UNKNOWN, Task
from proud.methods.base import Method

GALLERY_BYTES = 1_000_000  # for all domains together
MOST_SHOWN = 8  # most certain and least certain ones of a domain


def certain_images(method: Method, task: Task, shown: dict[str, Tensor], side: int) -> dict[str, Tensor]:
    """`certain/KEY/…`: images from the least to the most uncertain, label, uncertainty and true class (-1: unknown).

    Pseudo-labeled domains are ranked by ε over all images, others by 1 - confidence over the rows in `shown`.
    """
    domains = [(f"unlabeled/{domain.name}", domain.images) for domain in task.training.unlabeled]
    if task.evaluation.test is not None:
        domains.append(("test", task.evaluation.test.images))
    each = max(1, min(MOST_SHOWN, GALLERY_BYTES // (len(domains) * 2 * 3 * side * side))) if domains else 0
    found: dict[str, Tensor] = {}
    for key, images in domains:
        rows, labels, doubt = _ranking(method, key, shown)
        order = doubt.argsort(stable=True)
        here = min(each, (len(order) + 1) // 2)
        chosen = torch.cat([order[:here], order[max(here, len(order) - here) :]])
        rows = rows[chosen]
        found[f"certain/{key}/images"] = ops.center_crop(images[rows], method.context.size)
        found |= {f"certain/{key}/labels": labels[chosen], f"certain/{key}/uncertainty": doubt[chosen]}
        found[f"certain/{key}/truth"] = _truth(task, key, len(images))[rows]
    return found


def _ranking(method: Method, key: str, shown: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, labels and uncertainties to choose from."""
    pseudo = method.pseudo_labels().get(key.partition("/")[2])
    if pseudo is not None:
        return torch.arange(len(pseudo.labels)), pseudo.labels.cpu(), pseudo.uncertainty.float().cpu()
    confidence, labels = shown[f"{key}/logits"].float().softmax(1).max(1)
    return shown[f"{key}/rows"].cpu(), labels.cpu(), 1 - confidence.cpu()


def _truth(task: Task, key: str, count: int) -> Tensor:
    if key == "test" and task.evaluation.test is not None:
        return task.evaluation.test.labels
    audit = task.evaluation.audits.get(key.partition("/")[2])
    return torch.full((count,), UNKNOWN) if audit is None else audit.labels


def pair_origins(method: Method, task: Task, rows: Tensor) -> dict[str, Tensor]:
    """Which unlabeled domain each row of their union is from, and its true class."""
    rows = rows.cpu()
    starts = torch.tensor(method.context.unlabeled.starts)
    domain = torch.searchsorted(starts, rows, right=True) - 1
    every = [_truth(task, f"unlabeled/{each.name}", len(each)) for each in task.training.unlabeled]
    return {"domain": domain, "truth": torch.cat(every)[rows]}
