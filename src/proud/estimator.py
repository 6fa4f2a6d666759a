"""The library in scikit-learn's manners: the constructor only stores, `fit` learns, fitted attributes end in `_`.

model = ProUD(epochs=20).fit(labeled="central", unlabeled=["north", "south"])
model.predict("new_images")
model.save("mine")                    # later: proud.load("mine").predict(...)
"""

from __future__ import annotations

import csv
import tempfile
import warnings
from contextlib import ExitStack
from dataclasses import fields
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from proud.config import NOTHING, Options, RunConfig, Square, check_kinds
from proud.errors import UserError
from proud.text import nfc

if TYPE_CHECKING:
    import numpy as np

    from proud.data.types import Task
    from proud.model.predict import Model
    from proud.methods.base import MethodConfig


class ProUD:
    """Learns from one labeled domain and several unlabeled ones; classifies images of domains it has never seen.

    None means: as suits the data (see `proud train --help`). Further keywords are settings of the method, such as
    `pretrain_epochs=10` or `alpha=0.5`. With `out`, the run's folder is kept and an unfinished run can be resumed.

    Fitted: `classes_`, `model_` (the network with its input format), `history_` (one record per epoch), `result_`
    (scores), and `pseudo_labels_`: per domain the last labels of its images, under `path` (for arrays, `row`), `label`
    and `uncertainty`.
    """

    def __init__(
        self,
        method: str = "proud",
        model: str = "auto",
        weights: str = "auto",
        size: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        val: float = 0.1,
        seed: int = 2022,
        device: str = "auto",
        out: str | Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        skip_bad: bool = False,
        quiet: bool = True,
        square: Square = "middle",
        **settings: Any,
    ) -> None:
        self.method = method
        self.model = model
        self.weights = weights
        self.size = size
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.val = val
        self.seed = seed
        self.device = device
        self.out = out
        self.resume = resume
        self.overwrite = overwrite
        self.skip_bad = skip_bad
        self.quiet = quiet
        self.square = square
        self.settings = settings

    # ---- parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _own_parameters()} | self.settings

    def set_params(self, **params: Any) -> Self:
        for name, value in params.items():
            if name in _own_parameters():
                setattr(self, name, value)
            else:
                self.settings = self.settings | {name: value}
        return self

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in _own_parameters().items()}
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if name not in defaults or value != defaults[name]
        ]
        return f"ProUD({', '.join(changed)})"

    # ---- learning

    def fit(self, labeled: Any, unlabeled: Any, test: Any = None) -> Self:
        """Train.

        labeled: a folder of class folders, a pair (images, labels), or a `LabeledDomain`.
        unlabeled: a list of domains: folders of images, images, or `UnlabeledDomain`s.
        test: like `labeled`, an unseen domain; it is measured on and changes nothing else.

        Images are one uint8 array, or a list of arrays or PIL images of any sizes.
        """
        import torch

        from proud.cli.show import TrainingBar
        from proud.data.python_inputs import gather
        from proud.methods import check_name
        from proud.training.run import Stopped, train

        _setting_names(self.method, self.settings)
        check_name(self.method, self.settings)
        numbers: dict[str, Any] = {"size": self.size or 0, "val": self.val, "seed": self.seed}
        check_kinds(RunConfig(**numbers, skip_bad=self.skip_bad, square=self.square))
        threads = torch.get_num_threads()
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            task, network = gather(
                labeled,
                unlabeled,
                test,
                model=self.model,
                size=None if self.size is None else int(self.size),
                square=self.square,
                val=self.val,
                seed=self.seed,
                skip_bad=self.skip_bad,
                progress=not self.quiet,
            )
            names = _given_names(labeled)
            folder = Path(self.out or stack.enter_context(tempfile.TemporaryDirectory()))
            options = Options(
                out=str(folder), device=self.device, resume=self.resume, overwrite=self.overwrite, quiet=self.quiet
            )
            bar = stack.enter_context(TrainingBar(self.method, self.quiet))
            try:
                result = train(
                    self._run_config(task, network), self._method_config(network), options, task=task, watch=bar
                )
            except Stopped as stopped:
                raise KeyboardInterrupt("training was stopped; with `out` and resume=True it goes on") from stopped
            self._remember(folder, result, names)
        for text in result.get("warnings", []):
            warnings.warn(text, stacklevel=2)
        return self

    def _run_config(self, task: Task, network: str) -> RunConfig:
        return RunConfig(
            data="python",
            labeled=task.training.labeled.name,
            test=NOTHING if task.evaluation.test is None else task.evaluation.test.name,
            unlabeled=tuple(domain.name for domain in task.training.unlabeled),
            method=self.method,
            model=network,
            weights=self.weights,
            size=int(self.size or 0),
            square=self.square,
            val=self.val,
            seed=self.seed,
            skip_bad=self.skip_bad,
        )

    def _method_config(self, network: str) -> MethodConfig:
        from proud.methods import method_config
        from proud.methods.presets import preset

        given = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        chosen = {name: value for name, value in given.items() if value is not None} | self.settings
        return method_config(self.method, **preset("python", network, self.method) | chosen)

    def _remember(self, folder: Path, result: dict[str, Any], names: dict[str, Any]) -> None:
        """`names`: class -> label as it was given, numbers as numbers."""
        import numpy as np

        from proud.model.predict import load_model
        from proud.training.records import Records

        self.model_: Model = load_model(folder, self.device)
        self.classes_: np.ndarray = np.array([names.get(name, name) for name in self.model_.classes])
        self.history_: list[dict[str, Any]] = Records(folder / "records.jsonl").read()
        self.result_: dict[str, Any] = {key: value for key, value in result.items() if key != "folder"}
        self.pseudo_labels_ = _read_pseudo_labels(folder / "pseudo_labels.csv", names)

    # ---- using what was learned

    def predict(self, images: Any, skip_bad: bool = False) -> np.ndarray:
        """The label of each image: an array, a list of images, files, or a folder (its images sorted by path).

        With `skip_bad`, files that cannot be read are left out with a warning; `predict_table` says which images the
        answers belong to.
        """
        probabilities = self.predict_proba(images, skip_bad)
        return self.classes_[probabilities.argmax(1)]

    def predict_proba(self, images: Any, skip_bad: bool = False) -> np.ndarray:
        """Probabilities [N, K], columns in the order of `classes_`."""
        return self._fitted().predict_proba(images, skip_bad)

    def predict_table(
        self,
        images: Any,
        skip_bad: bool = False,
        coverage: float = 0.9,
        risk: float = 0.05,
        sets: Literal["lac", "aps"] = "lac",
    ) -> dict[str, np.ndarray]:
        """All that is said of each image, in the order of `predict`: `path` (for arrays, `row`), `label`, `confidence`
        and, as far as the model has them, `set` (a tuple of labels, the likeliest first), `abstain` (True or False)
        and `uncertainty`. What they mean: docs/trust.md."""
        from proud.model.answers import Asked
        from proud.model.predict import answer_table

        model = self._fitted()
        return answer_table(model, images, self.classes_, Asked(coverage, risk, sets), skip_bad)

    def score(self, images: Any, labels: Any) -> float:
        """Share of the images whose label is predicted."""
        import numpy as np

        from proud.data.arrays import as_numpy

        truth = np.array([nfc(str(label)) for label in as_numpy(labels).tolist()])
        found = np.array([nfc(str(label)) for label in self.predict(images).tolist()])
        if len(truth) != len(found):
            raise UserError(f"There are {len(found)} images but {len(truth)} labels.")
        return float((found == truth).mean())

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Keep the model in a folder of its own, for `proud.load` and `proud predict`."""
        self._fitted().save(folder, overwrite)

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise UserError("This ProUD is not fitted yet: call fit(labeled=..., unlabeled=[...]) first.")
        return self.model_


def load(folder: str | Path, device: str = "auto") -> Model:
    """A trained model from a run's folder or from `ProUD.save`; it has `predict`, `predict_proba` and `predict_table`.

    It knows its classes by their names: what were numbers are strings here.
    """
    from proud.model.predict import load_model

    return load_model(folder, device)


def _own_parameters() -> dict[str, Parameter]:
    parameters = list(signature(ProUD.__init__).parameters.values())
    return {parameter.name: parameter for parameter in parameters[1:-1]}


def _setting_names(method: str, settings: dict[str, Any]) -> None:
    """Refuse settings that the method does not have."""
    from proud.methods import method_class

    known = [field.name for field in fields(method_class(method).Config)]
    for name in settings:
        if name not in known:
            hint = _hint(name, [*known, *_own_parameters()])
            raise UserError(f"The method {method!r} has no setting {name!r}.{hint} It has: {', '.join(known)}.")


def _hint(name: str, known: list[str]) -> str:
    """What to do with a keyword that is not known: one of the command's options is no slip of the pen."""
    if name in signature(ProUD.fit).parameters:
        return f" Give it to fit: fit({name}=...)."
    if name in {field.name for kind in (RunConfig, Options) for field in fields(kind)}:
        return " That is an option of the command `proud train` alone."
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _given_names(labeled: Any) -> dict[str, Any]:
    """Class -> label as it was given."""
    from proud.data.arrays import as_numpy

    values = as_numpy(labeled[1] if isinstance(labeled, tuple) else ())
    return {nfc(str(label)): value for label, value in zip(values.tolist(), values, strict=True)}


def _read_pseudo_labels(path: Path, names: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Per domain, columns in the order of the paths or, for arrays, of their rows."""
    import numpy as np

    from proud.training.records import plain_cell

    domains: dict[str, list[dict[str, str]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            for cells in csv.DictReader(file):
                row = {column: plain_cell(text) for column, text in cells.items()}
                domains.setdefault(row["domain"], []).append(row)
    found = {}
    for name, rows in domains.items():
        in_memory = all(row["path"].isdigit() for row in rows)
        if in_memory:
            rows.sort(key=lambda row: int(row["path"]))
        places = np.array([int(row["path"]) for row in rows]) if in_memory else np.array([row["path"] for row in rows])
        found[name] = {
            "row" if in_memory else "path": places,
            "label": np.array([names.get(row["label"], row["label"]) for row in rows]),
            "uncertainty": np.array([float(row["uncertainty"]) for row in rows]),
        }
    return found
