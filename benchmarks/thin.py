"""A task with fewer images in one domain, for measuring small and unequal sites where all images are there."""

from __future__ import annotations

from dataclasses import replace

import torch

from proud.data.types import Task
from proud.randomness import seed_for


def thinned(task: Task, site: str, share: float, seed: int) -> Task:
    """The task with a share of the training images of its labeled or of an unlabeled domain, drawn without labels."""
    training, audits = task.training, task.evaluation.audits
    sizes = {domain.name: len(domain) for domain in (training.labeled, *training.unlabeled)}
    if site not in sizes:
        raise ValueError(f"{site} is not trained on here, but {', '.join(sizes)}")
    generator = torch.Generator().manual_seed(seed_for(seed, "thin", site))
    rows = torch.randperm(sizes[site], generator=generator)[: max(1, round(share * sizes[site]))].sort().values
    if site == training.labeled.name:
        labeled = replace(
            training.labeled, images=training.labeled.images[rows], labels=training.labeled.labels[rows], groups=None
        )
        return replace(task, training=replace(training, labeled=labeled))
    unlabeled = tuple(
        replace(domain, images=domain.images[rows], ids=tuple(domain.ids[row] for row in rows), known=None)
        if domain.name == site
        else domain
        for domain in training.unlabeled
    )
    audit = audits[site]
    audit = replace(audit, labels=audit.labels[rows], paths=tuple(audit.paths[row] for row in rows))
    evaluation = replace(task.evaluation, audits=audits | {site: audit})
    return replace(task, training=replace(training, unlabeled=unlabeled), evaluation=evaluation)
