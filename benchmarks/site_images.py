"""The unseen site of a finished run: its images as stored tensors, with labels; shared by scripts about new sites."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from proud.data.benchmarks import open_catalog
from proud.data.decode import decode_all
from proud.model.evaluate import find_data, labeled_files
from proud.model.load import load_model
from proud.model.predict import Model


def load_site(folder: Path, device: str, data: str = "", root: str = "", most: int = 0) -> tuple[Model, Tensor, Tensor]:
    """Model, images [N,3,S,S] and labels [N] of its test domain. `most`: a random choice of so many."""
    model = load_model(folder, device)
    data, root = find_data(model.config, data, root)
    catalog = open_catalog(data, root)
    files, labels = labeled_files(model, catalog, str(model.config["test"]))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[: most or None]
    sources = catalog.sources(files)
    images, kept, _ = decode_all([sources[row] for row in order.tolist()], model.pixels, skip_bad=True)
    return model, images, labels[order[kept]]


def about(model: Model) -> dict[str, object]:
    config = model.config
    return {key: config[key] for key in ("labeled", "test", "method", "seed")} | {"size": model.spec.size}


def skewed(labels: Tensor, ratio: float, seed: int) -> Tensor:
    """Rows in which the classes, in random order, have shares from 1 down to 1 / ratio."""
    generator = torch.Generator().manual_seed(seed)
    counts = labels.bincount()
    classes = torch.randperm(len(counts), generator=generator).tolist()
    shares = [ratio ** (-place / max(1, len(classes) - 1)) for place in range(len(classes))]
    scale = min(int(counts[k]) / share for k, share in zip(classes, shares, strict=True))
    rows = []
    for k, share in zip(classes, shares, strict=True):
        mine = (labels == k).nonzero().flatten()
        rows.append(mine[torch.randperm(len(mine), generator=generator)[: max(1, round(scale * share))]])
    return torch.cat(rows)
