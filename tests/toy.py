"""A task that every method learns in seconds: four textures, 16×16, in domains that differ in colours and noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from proud import ProUD
from proud.config import RunConfig, Square, TaskSpec
from proud.data.python_inputs import catalog_of
from proud.data.source import find_task
from proud.data.task import read_task
from proud.data.types import LabeledDomain, Task
from proud.manifest import MANIFEST, manifest_file, read_manifest
from proud.methods import method_config
from proud.stamps import SEAL, Stamp, sealed

CLASSES = ("across", "checks", "down", "plain")
SIDE = 16
# ink, paper, noise of each domain
LOOKS = [
    ((40, 40, 60), (220, 215, 205), 8),
    ((90, 40, 40), (200, 210, 230), 12),
    ((30, 80, 40), (230, 230, 170), 12),
    ((30, 50, 110), (240, 200, 180), 16),
    ((100, 30, 90), (190, 230, 230), 10),
    ((70, 60, 30), (240, 240, 240), 14),
    ((20, 80, 90), (250, 220, 210), 18),
]
FAST_SETTINGS = {
    "epochs": 4,
    "pretrain_epochs": 4,
    "batch_size": 16,
    "lr": 0.02,
    "weight_decay": 0.0005,
    "mixup": 0.4,
    "tau_uncertainty": 0.1,
    "flip": False,
}

# of the Python interface, for a short training
SHORT = {
    "size": SIDE,
    "epochs": 2,
    "batch_size": 16,
    "lr": 0.02,
    "pretrain_epochs": 6,
    "weight_decay": 0.0005,
    "least_steps": 1,
    "device": "cpu",
}


def same_network(a: ProUD, b: ProUD) -> bool:
    import torch

    mine, other = (model.model_.net.state_dict() for model in (a, b))
    return all(torch.equal(value, other[key]) for key, value in mine.items())


def toy_images(domain: int, per_class: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [N,16,16,3] and class names [N], classes in turn."""
    random = np.random.default_rng([7, domain, seed])
    ink, paper, noise = LOOKS[domain]
    images, labels = [], []
    for _ in range(per_class):
        for label in CLASSES:
            ink_here = _pattern(label, int(random.integers(0, 4)))[..., None]
            clean = ink_here * np.array(ink) + (1 - ink_here) * np.array(paper)
            images.append((clean + random.normal(0, noise, clean.shape)).clip(0, 255).astype(np.uint8))
            labels.append(label)
    return np.stack(images), np.array(labels)


def _pattern(label: str, shift: int) -> np.ndarray:
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    stripes = {"across": y + shift, "down": x + shift}
    if label in stripes:
        return (stripes[label] // 2 % 2).astype(float)
    if label == "checks":
        return ((x + shift) // 4 + (y + shift) // 4) % 2 * 1.0
    return ((x - 7.5) ** 2 + (y - 7.5) ** 2 < (4 + shift / 2) ** 2) * 1.0


def toy_task(unlabeled: int = 2, per_class: int = 12, test: int | None = -1, seed: int = 2022) -> Task:
    """Look 0 is labeled, then come the unlabeled ones, their labels known to the audit. `test`: a look, or None."""
    hidden = [as_domain(f"hidden {t}", *toy_images(t, per_class)) for t in range(1, unlabeled + 1)]
    unseen = None if test is None else toy_images(test % len(LOOKS), per_class, seed=1)
    return task_from(toy_images(0, per_class), hidden, unseen, size=SIDE, seed=seed)


def task_from(
    labeled: Any,
    unlabeled: Any,
    test: Any = None,
    *,
    size: int,
    seed: int = 2022,
    val: float = 0.1,
    square: Square = "middle",
    skip_bad: bool = False,
) -> Task:
    """A task from whatever `fit` takes."""
    catalog, source, others, target, _ = catalog_of(labeled, unlabeled, test)
    spec = TaskSpec(labeled=source, unlabeled=others, test=target, seed=seed, val=val, square=square, skip_bad=skip_bad)
    return read_task(find_task(spec, catalog), size)


def as_domain(name: str, images: np.ndarray, labels: np.ndarray) -> LabeledDomain:
    import torch

    numbers = torch.tensor([CLASSES.index(label) for label in labels])
    return LabeledDomain(name, torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), numbers, CLASSES)


def toy_run(method: str = "proud", task: Task | None = None, **changes: object) -> RunConfig:
    test = "none" if task is not None and task.evaluation.test is None else "test"
    return RunConfig(
        **{"data": "toy", "labeled": "labeled", "test": test, "method": method, "model": "digits"} | changes
    )


def toy_settings(method: str = "proud", **changes: object):
    return method_config(method, **FAST_SETTINGS | changes)


def edit_json(path: Path, **changes: Any) -> None:
    """Change a JSON file of a run or of a model, as its program would have written it: with right checksums."""
    about = {key: value for key, value in json.loads(path.read_bytes()).items() if key != SEAL}
    is_sealed = SEAL in json.loads(path.read_bytes())
    about |= {key: value for key, value in changes.items() if key != SEAL}
    path.write_text(json.dumps(sealed(about) if is_sealed else about))
    restamp(path.parent)


def restamp(folder: Path) -> None:
    """Whatever is in a run's or a model's folder is right."""
    for place in (folder, folder.parent):
        there = [name for name in read_manifest(place) or {} if (place / name).is_file()]
        if there:
            (place / MANIFEST).write_bytes(
                manifest_file({name: Stamp.of((place / name).read_bytes()) for name in there})
            )


def write_folders(root: Path, domains: dict[str, int], per_class: int = 4, suffix: str = ".png") -> Path:
    """ROOT/<domain>/<class>/NN.png"""
    for name, look in domains.items():
        for row, (image, label) in enumerate(zip(*toy_images(look, per_class), strict=True)):
            path = root / name / label / f"{row:03d}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    return root
