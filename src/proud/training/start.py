"""Starting from the model of a finished run instead of pretraining."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from proud.config import RunConfig
from proud.errors import UserError
from proud.manifest import Files
from proud.methods import method_class
from proud.model.format import read_run, run_folder
from proud.model.load import load_model
from proud.nets.models import ModelSpec
from proud.stored import RunRecord, TaskRecord
from proud.text import some


@dataclass(frozen=True, eq=False)
class Start:
    """The weights that a run starts from, and where they come from."""

    folder: str
    spec: ModelSpec
    classes: tuple[str, ...]
    state: dict[str, Tensor]
    trained: dict[str, Any]
    """how that model was trained"""
    held_out: frozenset[str] | None
    """marks of its validation images; None: not known"""
    pictures: dict[str, str]
    """digests of the domains that it was trained on, and that the models before it were trained on"""

    @property
    def provenance(self) -> dict[str, Any]:
        """As in run.json."""
        return {"folder": self.folder, "weights": self.digest, "config": self.trained, "pictures": self.pictures}

    def warnings(self, config: RunConfig, task: TaskRecord) -> list[str]:
        """About validation and test images that this model was trained on."""
        held, known = task.get("held_out", []), self.held_out
        found, pictures = [], task.get("pictures", {})
        own = config.labeled == self.trained.get("labeled") or pictures.get(config.labeled) in self.pictures.values()
        seen = len(held) if known is None else sum(mark not in known for mark in held)
        if held and known is None:
            found.append(
                f"It is not known which images the model in {self.folder} was trained on. If these validation images "
                "were among them, their accuracy and everything that is calibrated on them are too good."
            )
        elif seen and own:
            found.append(
                f"The model in {self.folder} may have been trained on {seen} of the {len(held)} validation images of "
                f"{config.labeled}: their accuracy and everything that is calibrated on them are then too good."
            )
        if pictures.get(config.test) in self.pictures.values():
            found.append(
                f"The model in {self.folder} was trained on the images of {config.test}, or a model before it was: the "
                "accuracy there is not that of an unseen site."
            )
        return found

    @property
    def digest(self) -> str:
        found = hashlib.sha256()
        for name in sorted(self.state):
            found.update(name.encode() + self.state[name].contiguous().numpy().tobytes())
        return found.hexdigest()[:16]

    def fit(self, config: RunConfig) -> RunConfig:
        """With the network of the model, which is no longer a choice."""
        if config.model not in ("auto", self.spec.name):
            raise UserError(
                f"--model {config.model} differs from the network of {self.folder}, {self.spec.name}: a run that "
                "starts from a model keeps its network."
            )
        if config.size not in (0, self.spec.size):
            raise UserError(
                f"--size {config.size} differs from that of the model in {self.folder}, {self.spec.size}: a run that "
                "starts from a model keeps its image size."
            )
        if config.weights not in ("auto", "none"):
            raise UserError("--weights and --from exclude each other: both name the initial weights.")
        return replace(config, model=self.spec.name, size=self.spec.size)

    def refuse_other_classes(self, classes: tuple[str, ...]) -> None:
        if classes == self.classes:
            return
        more, fewer = (sorted(set(a) - set(b)) for a, b in ((classes, self.classes), (self.classes, classes)))
        parts = [f"only in the labeled domain: {some(more)}"] if more else []
        parts += [f"only in the model: {some(fewer)}"] if fewer else []
        raise UserError(f"The classes differ from those of the model in {self.folder} ({'; '.join(parts)}).")

    def refuse_change(self, before: RunRecord) -> None:
        """A resumed run needs the weights it started from."""
        if "started_from" not in before or before["started_from"]["weights"] != self.digest:
            raise UserError(
                f"The model in {self.folder} is not the one that this run started from: restore it, or start a new run "
                "in another --out."
            )


def read_start(config: RunConfig) -> Start | None:
    """None without --from. A method that cannot start from a model is refused."""
    if not config.start_from:
        return None
    if not method_class(config.method).starts_from_model:
        raise UserError(
            f"{config.method} trains two networks that must differ, so it cannot start from one model: leave --from "
            "out, or choose another --method."
        )
    model = load_model(config.start_from, "cpu")
    state = dict(model.net.state_dict())
    kept = ("method", "data", "labeled", "unlabeled", "seed", "start_from")
    trained = {name: model.config[name] for name in kept if name in model.config}
    return Start(config.start_from, model.spec, model.classes, state, trained, *seen_by(Path(config.start_from)))


def seen_by(folder: Path) -> tuple[frozenset[str] | None, dict[str, str]]:
    """What is known about the images of a model: marks of its validation images, digests of its training domains."""
    if not Files(run_folder(folder)).has("run.json"):
        return None, {}
    about = read_run(folder)
    task = about["task"]
    used = {name for name, domain in task["domains"].items() if domain["role"] != "test"}
    pictures = {name: digest for name, digest in task.get("pictures", {}).items() if name in used}
    earlier = about["started_from"].get("pictures", {}) if "started_from" in about else {}
    validated = any(domain.get("validation") for domain in task["domains"].values())
    known = None if validated and "held_out" not in task else frozenset(task.get("held_out", []))
    return known, earlier | pictures
