"""The library with a scikit-learn-style API: the constructor only stores, `fit` learns, fitted attributes end in `_`.

model = ProUD(epochs=20).fit(labeled="central", unlabeled=["north", "south"])
model.predict("new_images")
model.save("mine")                    # later: proud.load("mine").predict(...)
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from rich.markup import escape

from proud.config import Options, RunConfig, check, choose_model
from proud.data.arrays import as_numpy
from proud.data.csv_table import rows_of_labels
from proud.data.python_inputs import catalog_of, images_and_labels, with_labels
from proud.data.source import find_task
from proud.errors import UserError
from proud.estimator_settings import COMMON_SETTINGS, check_setting_names, constructor_signature, own_parameters
from proud.machine import Stopped, choose_device, using_threads
from proud.manifest import Files
from proud.methods import check_name, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import CPU_BATCH, chosen_for_cpu, preset, suited_size
from proud.model.answers import AnswerOptions
from proud.model.format import read_run
from proud.model.hub import find_model
from proud.model.load import load_model
from proud.model.predict import Model, answer_table, warn_about_skipped
from proud.nets.sites import about_found_sites
from proud.stored import EpochRecord
from proud.text import nfc, some
from proud.training.progress_lines import Silent, watching
from proud.training.records import epochs_of, read_pseudo_labels
from proud.training.run import load as load_task
from proud.training.run import train
from proud.training.start import read_start
from proud.trust.fitted import promises_of


class ProUD:
    """Learns from one labeled domain and several unlabeled ones; classifies images of domains it has never seen.

    Attributes:
        classes_: once fitted, the labels, in the order of the columns of `predict_proba`.
        model_: the network with its input format, calibration and prototypes: a `Model`.
        history_: one record per epoch.
        result_: the scores, as in result.json.
        pseudo_labels_: per unlabeled domain, arrays `path` (for images in memory, `row`), `label`, `uncertainty`.
    """

    method: str
    device: str
    threads: int | None
    follow_links: bool
    batch_size: int | None

    def __init__(self, method: str = RunConfig.method, **parameters: Any) -> None:
        """Store the settings; nothing is checked or computed before `fit`.

        Args:
            method: the training method, such as "proud-plus", "proud" or "erm".
            **parameters: settings of the run (`model`, `weights`, `size`, `square`, `val`, `seed`, `precision`,
                `skip_bad`, `follow_links`, ...), of its execution (`device`, `threads`, `out`, `resume`, `overwrite`,
                ...) and of the method (`epochs`, `lr`, `alpha`, ...). None means the default for the data.
                `proud train --help` explains each. With `out`, the run's folder is kept, and an unfinished run can be
                resumed. `verbose`: True shows a bar on a terminal and one line per epoch elsewhere, False nothing,
                None the bar alone.

        Example:
            >>> model = ProUD("proud-plus", epochs=20, device="cpu", verbose=True)
        """
        parameters["method"] = method
        for name, default in own_parameters().items():
            setattr(self, name, parameters.pop(name, default))
        self.settings = parameters

    # ---- parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters of the constructor, as scikit-learn's tools expect them.

        Args:
            deep: no parameter is an estimator, so it changes nothing.

        Returns:
            Name → value.

        Example:
            >>> ProUD(epochs=20).get_params()["epochs"]
            20
        """
        return {name: getattr(self, name) for name in own_parameters()} | self.settings

    def set_params(self, **params: Any) -> Self:
        """Change parameters before the next `fit`.

        Args:
            **params: as in the constructor.

        Returns:
            The estimator itself.

        Example:
            >>> ProUD().set_params(epochs=20)
            ProUD(epochs=20)
        """
        for name, value in params.items():
            if name in own_parameters():
                setattr(self, name, value)
            else:
                self.settings = self.settings | {name: value}
        return self

    def __repr__(self) -> str:
        defaults = own_parameters()
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if name not in defaults or value != defaults[name]
        ]
        return f"ProUD({', '.join(changed)}){self._state()}"

    def _state(self) -> str:
        """What it was fitted to, if it was."""
        if not hasattr(self, "model_"):
            return ""
        spec, accuracy = self.model_.spec, getattr(self, "result_", {}).get("val_accuracy")
        measured = "" if accuracy is None else f", {100 * accuracy:.1f} % right on validation images"
        classes = f"{len(self.classes_)} classes ({some(map(str, self.classes_))})"
        return f" fitted to {classes}: {spec.name} for {spec.size} × {spec.size} pixels{measured}"

    # ---- learning

    def fit(
        self,
        labeled: Any,
        y: Any = None,
        *,
        unlabeled: Any = None,
        test: Any = None,
        labels: Any = None,
        pool: Any = None,
        sites: int | str = "auto",
    ) -> Self:
        """Train.

        Images may be a folder; a list of image files; a CSV file or DataFrame with a column `path`; one uint8 array; a
        list of arrays or PIL images of any size; a torch Dataset; a Hugging Face dataset.

        Args:
            labeled: the labeled domain: a folder of class folders, a pair (images, labels), a table with a column
                `label`, a dataset with labels, or, with `y`, its images.
            y: the labels of the images, as in scikit-learn.
            unlabeled: the other domains: a list of sites, a dict of named sites, or a single one. In a table with a
                column `domain`, each domain is a site. Methods such as "erm" need none.
            test: like `labeled`, an unseen domain; it is measured on and changes nothing else.
            labels: labels of a few unlabeled images: a CSV file or DataFrame with the columns `path`, `domain` and
                `label`, as `proud label-next` writes it.
            pool: unlabeled images of unknown origin, like one of `unlabeled`; they are grouped by style into sites.
            sites: the number of sites in the pool, or "auto" for the number with the best separation.

        Returns:
            The estimator itself.

        Raises:
            UserError: the images or settings cannot be used; the message says why.

        Example:
            >>> model = ProUD(epochs=20).fit("data/central", unlabeled=["data/north", "data/south"])
            >>> model = ProUD().fit(images, y, unlabeled={"north": more_images}, test=(new_images, new_labels))
        """
        check_setting_names(str(self.method), self.settings, signature(self.fit).parameters)
        check_name(self.method, self.settings)
        given = self._given()
        if given["verbose"] not in (True, False, None):
            raise UserError(f"verbose must be True, False or None, got {given['verbose']!r}.")
        options = Options(**{field.name: given[field.name] for field in fields(Options) if field.name in given})
        options = replace(options, out=str(options.out or ""))
        check(self._config(given), options)
        images = catalog_of(with_labels(labeled, y), unlabeled, test, pool, given["follow_links"])
        roles = {"data": "python", "labeled": images.labeled, "unlabeled": images.unlabeled, "test": images.test}
        roles |= {"unlabeled_pool": "python" if pool is not None else "", "sites": str(sites)}
        roles |= {"labels": str(labels)} if isinstance(labels, str | Path) else {}
        config = self._config(given | roles)
        source = find_task(config, images.catalog)
        if labels is not None and not config.labels:
            source = replace(source, labels=tuple(rows_of_labels(labels)))
        if (start := read_start(config)) is not None:
            config = start.fit(config)
        on_cpu = choose_device(options.device).type == "cpu"
        model = choose_model(config.model, source.native_side)
        suited = replace(suited_size(config, model, on_cpu), model=model)
        settings = self._settings(suited, on_cpu)
        batch = settings.batch_size if self.batch_size is None and settings.batch_size == CPU_BATCH else 0
        notice = chosen_for_cpu(suited.size if suited.size != config.size else 0, batch)
        config = suited
        with ExitStack() as stack:
            stack.enter_context(using_threads(None))
            folder = Path(options.out or stack.enter_context(tempfile.TemporaryDirectory()))

            def first_lines() -> str:
                task = read_run(folder)["task"]
                sites = escape(about_found_sites(task))
                return "\n".join(filter(None, [notice, sites, promises_of(task, options.folds)]))

            shown = watching(str(self.method), given["verbose"], first_line=first_lines)
            options = replace(options, out=str(folder), quiet=isinstance(shown, Silent))
            watch = stack.enter_context(shown)
            # of a run that may be finished, the images are compared with these
            data = (
                load_task(config, source, cache=options.cache, verify=True, start=start)[0]
                if options.resume
                else source
            )
            try:
                result = train(config, settings, options, data=data, watch=watch)
            except Stopped as stopped:
                raise KeyboardInterrupt("training was stopped; with `out`, resume=True continues it") from stopped
            self._remember(folder, result, images.names)
            if skipped := read_run(folder)["task"]["skipped"]:
                warn_about_skipped([file["path"] for file in skipped])
        for text in result.get("warnings", []):
            warnings.warn(text, stacklevel=2)
        return self

    def _given(self) -> dict[str, Any]:
        """All parameters; None is the default. NumPy's numbers become Python's, and paths text."""
        defaults = own_parameters()
        values = {name: getattr(self, name) for name in defaults}
        values = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        return {name: defaults[name] if value is None else value for name, value in values.items()}

    def _config(self, given: dict[str, Any]) -> RunConfig:
        return RunConfig(**{field.name: given[field.name] for field in fields(RunConfig) if field.name in given})

    def _settings(self, config: RunConfig, on_cpu: bool) -> MethodConfig:
        given = {name: getattr(self, name) for name in COMMON_SETTINGS} | self.settings
        chosen = {name: value for name, value in given.items() if value is not None}
        usual = preset("python", config.model, config.method, on_cpu, bool(config.start_from), config.preset)
        return method_config(config.method, **usual | chosen)

    def _remember(self, folder: Path, result: Mapping[str, Any], names: dict[str, Any]) -> None:
        """`names`: class -> label as it was given, numbers as numbers."""
        self.model_: Model = load_model(folder, self.device or "auto")
        self.classes_: np.ndarray = np.array([names.get(name, name) for name in self.model_.classes])
        self.history_: list[EpochRecord] = epochs_of(folder).read()
        self.result_: dict[str, Any] = {key: value for key, value in result.items() if key != "folder"}
        self.pseudo_labels_ = read_pseudo_labels(Files(folder), names)

    # ---- using what was learned

    def predict(self, images: Any, skip_bad: bool = False, adapt: bool = False) -> np.ndarray:
        """The label of each image.

        Args:
            images: images in any form that `fit` takes; those of a folder are sorted by path.
            skip_bad: skip unreadable files with a warning; `predict_table` then names the images of the answers.
            adapt: the images are those of one site; classify them together (docs/guide/new-site.md).

        Returns:
            Labels [N], of the type that `fit` was given.

        Example:
            >>> model.predict("new_images")
            array(['cat', 'dog'], dtype='<U3')
        """
        probabilities = self.predict_proba(images, skip_bad, adapt)
        return self.classes_[probabilities.argmax(1)]

    def predict_proba(self, images: Any, skip_bad: bool = False, adapt: bool = False) -> np.ndarray:
        """The probability of each class.

        Args:
            images: as in `predict`.
            skip_bad: as in `predict`.
            adapt: as in `predict`.

        Returns:
            Probabilities [N, K], columns in the order of `classes_`; calibrated if there were validation images.

        Example:
            >>> model.predict_proba(["a.png", "b.png"]).argmax(1)
        """
        with using_threads(self.threads):
            return self._fitted().predict_proba(images, skip_bad, adapt)

    def predict_table(
        self,
        images: Any,
        skip_bad: bool = False,
        coverage: float = 0.9,
        risk: float = 0.05,
        sets: Literal["lac", "aps"] = "lac",
        adapt: bool = False,
    ) -> dict[str, np.ndarray]:
        """All answers about each image, in the order of `predict`. What they mean: docs/guide/trust.md.

        Args:
            images: as in `predict`.
            skip_bad: as in `predict`.
            coverage: share of prediction sets that contain the true class, on new images of the labeled domain.
            risk: abstain so that at most this share of the answers is wrong, on new images of the labeled domain.
            sets: kind of prediction sets: the smallest ("lac"), or adaptive to each image ("aps").
            adapt: as in `predict`.

        Returns:
            The columns `path` (for images in memory, `row`), `label`, `confidence` and, if the model has them, `set`
            (a tuple of labels by falling probability) and `abstain` (True or False). With `adapt`, `plain` is the
            label without it.

        Example:
            >>> pandas.DataFrame(model.predict_table("new_images"))
        """
        model = self._fitted()
        with using_threads(self.threads):
            return answer_table(model, images, self.classes_, AnswerOptions(coverage, risk, sets), skip_bad, adapt)

    def score(self, images: Any, labels: Any = None) -> float:
        """Accuracy.

        Args:
            images: with `labels`, images as in `predict`; without, a labeled domain as in `fit`, such as a folder of
                class folders.
            labels: the true labels.

        Returns:
            The share of the images whose predicted label is the true one.

        Example:
            >>> model.score("data/west")
        """
        if labels is None:
            images, labels = images_and_labels(images, self.follow_links)
        truth = np.array([nfc(str(label)) for label in as_numpy(labels).tolist()])
        found = np.array([nfc(str(label)) for label in self.predict(images).tolist()])
        if len(truth) != len(found):
            raise UserError(f"There are {len(found)} images but {len(truth)} labels.")
        return float((found == truth).mean())

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the model to a folder of its own, for `proud.load` and `proud predict`.

        Args:
            folder: a new folder.
            overwrite: replace a model in that folder; other files are never touched.

        Example:
            >>> model.save("mine")
            >>> proud.load("mine").predict("new_images")
        """
        self._fitted().save(folder, overwrite)

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "auto", revision: str | None = None) -> Self:
        """A fitted `ProUD` from the folder of a saved model or of a run, or from `OWNER/NAME` on a model hub.

        Only JSON and safetensors are read, and nothing in them is executed. It can predict, score and save.

        Args:
            name: the folder, or the name on the hub (which needs the package huggingface_hub).
            device: "auto", "cpu", "cuda" or "cuda:N".
            revision: a branch, tag or commit of the hub's repository; None is its default branch.

        Returns:
            A fitted estimator.

        Raises:
            UserError: there is no such model, or its files are damaged.

        Example:
            >>> ProUD.from_pretrained("mine").predict("new_images")
            array(['five', 'five', 'one', 'one'], dtype='<U4')
        """
        model = load_model(find_model(name, revision), device)
        made = cls(str(model.config.get("method", RunConfig.method)), device=device)
        made.model_, made.classes_ = model, np.array(model.classes)
        return made

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise UserError("This ProUD is not fitted yet: call fit(labeled=..., unlabeled=[...]) first.")
        return self.model_


ProUD.__signature__ = constructor_signature()  # type: ignore[attr-defined]
