"""Starting from the model of a finished run instead of pretraining."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from proud.config import RunConfig
from proud.errors import UserError
from proud.methods import method_class
from proud.model.load import load_model
from proud.nets.models import ModelSpec
from proud.stored import RunRecord
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

    @property
    def provenance(self) -> dict[str, Any]:
        """As in run.json."""
        return {"folder": self.folder, "weights": self.digest, "config": self.trained}

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
    return Start(config.start_from, model.spec, model.classes, state, trained)
