"""One run from its settings: find and read the images, build the network, train, save what the run leaves behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from torch import Tensor

from proud.config import Options, RunConfig, check_run, choose_model, flat
from proud.data.catalog import Catalog
from proud.data.reader import MemoryCache
from proud.data.roles import no_unlabeled
from proud.data.source import TaskSource, find_task
from proud.data.task import read_task
from proud.data.types import Task
from proud.distributed.group import ALONE, Group
from proud.distributed.ranks import check_method
from proud.errors import UserError
from proud.held import new_id
from proud.machine import Stopped, choose_device, choose_threads, environment, stop_signals
from proud.manifest import MANIFEST
from proud.methods import code_version, method_class
from proud.methods.base import Method, MethodConfig, Sizes
from proud.methods.context import make_context, uncompiled
from proud.model.card import model_card
from proud.model.format import MODEL_FOLDER, model_files, read_run, read_verdicts, run_file
from proud.nets.models import ModelSpec, check_weights, model_spec
from proud.nets.sites import with_found_sites
from proud.stored import EpochRecord, ResultRecord, RunRecord, TrustRecord
from proud.training.checks import (
    check_folds,
    check_known_labels,
    notices,
    other_folds,
    output_folder,
    refuse_own_start,
)
from proud.training.completion import commit, finished_result
from proud.training.fast import compiled_or_plain
from proud.training.folds import FOLDS, check_can_fold, out_of_fold
from proud.training.forecast import forecasting
from proud.training.loop import Loop, Progress
from proud.training.memory import is_out_of_memory, too_large
from proud.training.outcome import calibration, collapses, final_description, save_outcome
from proud.training.result import balanced_scores, intervals, summary
from proud.training.reuse import Reuse
from proud.training.run_folder import (
    RunFolder,
    clear,
    opened,
    refuse_other_data,
    remove_checkpoints,
    remove_folds,
)
from proud.training.start import Start, read_start
from proud.training.steps import choose_epochs, kind_of_steps
from proud.typed import as_record

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Run:
    """Everything that `train` was called with, and the folder it writes."""

    config: RunConfig
    settings: MethodConfig
    options: Options
    folder: RunFolder
    group: Group = ALONE
    start: Start | None = None

    @property
    def stored(self) -> dict[str, Any]:
        """All settings, as in run.json."""
        return flat(self.config, self.settings)

    @property
    def writes(self) -> bool:
        return self.group.rank == 0


def train(
    config: RunConfig,
    settings: MethodConfig,
    options: Options,
    *,
    data: Catalog | TaskSource | Task | None = None,
    watch: Watch = lambda progress: None,
    group: Group = ALONE,
    reuse: Reuse | None = None,
) -> ResultRecord:
    """Train and save; returns the run's result, which is also in OUT/result.json.

    `data`: the images, if they are already found or read. With a `group` of processes all of them call this; only the
    first writes and gets the result. `reuse` (for one process): what other runs of a bench have done already.
    """
    with group.failing_together():
        check_run(config, settings, options)
        start = read_start(config)
        config = start.fit(config) if start is not None else config
        refuse_own_start(config, options)
        check_method(group, config.method, method_class(config.method), settings.batch_size)
        check_folds(config, options, group)
    run = Run(config, settings, options, RunFolder(output_folder(config, options)), group, start)
    with ExitStack() as stack:
        before = group.from_first(lambda: stack.enter_context(opened(run.folder, run.stored, options)))
        finished: ResultRecord | None = group.from_first(
            lambda: None if before is None else finished_result(run.folder, options)
        )
        if finished is not None and (text := other_folds(run.folder.path, options.folds)):
            warnings.warn(text, stacklevel=2)
        if finished is None:
            return train_in_folder(run, before, data, watch, reuse)
        if isinstance(data, Task):  # whose images were read anyway
            with group.failing_together():
                refuse_other_data(run.folder.path, before["task"], data.report)
        return {**finished, "folder": str(run.folder.path)}  # wherever it was when it was trained


def train_in_folder(
    run: Run,
    before: RunRecord | None,
    data: Catalog | TaskSource | Task | None,
    watch: Watch,
    reuse: Reuse | None,
) -> ResultRecord:
    """The folder is locked; `before` is the description of a run to be resumed."""
    with run.group.failing_together():
        task, method, about = build(run, before, data)
    losses = run.group.losses(method)
    if run.writes:
        start_folder(run, about) if before is None else continue_folder(run, before)
    quiet = run.options.quiet or run.group is not ALONE
    with stop_signals() as should_stop:
        loop = Loop(
            method,
            task,
            run.folder,
            run.stored,
            eval_every=run.options.eval_every,
            epochs=choose_epochs(run, method, losses),
            watch=watch if quiet else forecasting(watch, method, task, run.options.eval_every, 1 + run.options.folds),
            should_stop=should_stop,
            reuse=reuse,
        )
        loop.restore()
        try:
            records = loop.run()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            context = method.context
            del method, loop, losses  # their memory is needed for the search
            kind = method_class(run.config.method)
            raise UserError(too_large(error, kind, run.settings, context)) from None
        return finish(run, loop, records, watch)


def start_folder(run: Run, about: dict[str, Any]) -> None:
    """Only now, when everything has been checked, is an earlier run removed."""
    run_id = new_id()
    content = run_file({"id": run_id, "config": run.stored, **about})  # before an earlier run is removed
    run.folder.claim(run_id)
    clear(run.folder)
    run.folder.write("run.json", content)


def continue_folder(run: Run, before: RunRecord) -> None:
    """It is not finished, even if it was: something of it is damaged, and is made again."""
    run.folder.claim(before.get("id", ""))
    run.folder.remove(MANIFEST)


def finish(run: Run, loop: Loop, records: list[EpochRecord], watch: Watch) -> ResultRecord:
    """Save the model and the result."""
    method, task = loop.method, loop.task
    loop.announce("last pass over all images, calibration, verdicts")
    about = final_description(loop)
    if not run.writes:
        return {"epochs": len(records)}
    # in the precision in which the saved model predicts: its calibration is fitted on these
    outputs = loop.evaluator.logits(method.network(), "fp32")
    images = {name: len(labels) for name, (_, labels) in outputs.items()}
    if run.options.folds:
        outputs[FOLDS] = cross_validated(run, loop, watch)
    prototypes = save_outcome(run.folder, loop, about, records, outputs)
    problems = collapses(loop, outputs)
    result: dict[str, Any] = {**summary(records)} | ({"warnings": problems} if problems else {})
    trust = calibration(outputs, run.options.folds)
    result |= intervals(result, images)
    result |= balanced_scores(outputs, task.training.classes, trust["temperature"] if trust else 1.0)
    whole = as_record(result, ResultRecord)
    files = model_files(
        method.network().state_dict(),
        method.context.spec,
        task.training.classes,
        run.stored,
        trust=trust,
        prototypes=prototypes,
        warnings=problems,
        card=model_card(
            read_run(run.folder.path),
            whole,
            read_verdicts(run.folder.path),
            as_record(trust, TrustRecord) if trust else None,
        ),
    )
    for name, content in files.items():
        run.folder.write(f"{MODEL_FOLDER}/{name}", content)
    commit(run.folder, loop.stamps(), whole)
    if not run.options.keep_checkpoints:
        remove_checkpoints(run.folder)
    return {**whole, "folder": str(run.folder.path)}


def cross_validated(run: Run, loop: Loop, watch: Watch) -> tuple[Tensor, Tensor]:
    config = replace(run.config, model=loop.method.context.spec.name)  # chosen by the files, which a fold does not see

    def train_fold(fold: Task, options: Options, notify: Watch) -> None:
        train(config, run.settings, options, data=fold, watch=notify)

    outputs = out_of_fold(run.folder.path, loop.task, run.config.seed, run.options, watch, train_fold)
    remove_folds(run.folder)
    return outputs


# ---- building


def build(
    run: Run, before: RunRecord | None, data: Catalog | TaskSource | Task | None
) -> tuple[Task, Method, dict[str, Any]]:
    """Images, method, and their description in run.json. `before`: the description of a run to be resumed."""
    config, options, group = run.config, run.options, run.group
    start = run.start
    device = choose_device(group.device(options.device))
    # sums depend on the number of threads: a resumed run keeps it
    kept = before["threads"] if before and before.get("processes", 1) == group.size and "threads" in before else 0
    threads = choose_threads(options.threads or kept, group.local_size)
    if start is not None:
        data = data if isinstance(data, Task | TaskSource) else find_task(config, data)
        start.refuse_other_classes(data.training.classes if isinstance(data, Task) else data.roles.classes)
    verify = options.verify_cache or before is not None  # what stopped the run may have damaged the cache
    progress = not options.quiet and run.writes
    task, spec = load(config, data, progress=progress, cache=options.cache, verify=verify, start=start)
    check_known_labels(task, config.method)
    if options.folds:
        check_can_fold(task, options.folds, config.seed)
    for text in notices(config, run.settings, start, task) if before is None and run.writes else ():
        warnings.warn(text, stacklevel=2)
    if before is not None:
        refuse_other_data(run.folder.path, before["task"], task.report)
        if start is not None:
            start.refuse_change(before)
    precision: Literal["fp32", "bf16"] = "bf16" if device.type == "cuda" else "fp32"
    sizes = Sizes(len(task.training.labeled), tuple(map(len, task.training.unlabeled)))
    context = make_context(
        task.training,
        spec,
        device,
        weights=config.weights,
        seed=config.seed,
        precision=precision if config.precision == "auto" else config.precision,
        group=group,
        compile=compiled_or_plain if kind_of_steps(run, device, sizes) == "compiled" else uncompiled,
        start=start.state if start is not None else None,
    )
    method = method_class(config.method)(run.settings, context)
    about = {"task": task.report, "model": asdict(method.context.spec), "threads": threads}
    about |= {"code": code_version(config.method), **environment(device)}
    about |= {"processes": group.size} if group.size > 1 else {}
    about |= {"started_from": start.provenance} if start is not None else {}
    if before is not None and run.writes:
        note_changed_code(run, before, code_version(config.method))
    for text in method.describe().warnings if before is None and run.writes else ():
        warnings.warn(text, stacklevel=2)
    return task, method, about


def load(
    config: RunConfig,
    data: Catalog | TaskSource | Task | None = None,
    *,
    progress: bool = False,
    cache: str = "none",
    verify: bool = False,
    memory: MemoryCache | None = None,
    start: Start | None = None,
) -> tuple[Task, ModelSpec]:
    """The run's images, and the network for them; what cannot be built is refused before an image is decoded."""
    if isinstance(data, Task):
        name = choose_model(config.model, data.size)
        spec = model_spec(name, len(data.training.classes), data.size, config.square)
        check_weights(name, spec.size, config.weights)
        return data, spec
    source = data if isinstance(data, TaskSource) else find_task(config, data)
    if not source.roles.unlabeled and method_class(config.method).needs_unlabeled():
        raise no_unlabeled(source.catalog, config.method)
    name = choose_model(config.model, source.native_side)
    spec = model_spec(name, len(source.roles.classes), config.size, config.square)
    check_weights(name, spec.size, config.weights)
    held_out = (start.held_out if start is not None else None) or ()
    task = read_task(source, spec.size, progress=progress, memory=memory, disk=cache, verify=verify, held_out=held_out)
    return with_found_sites(task, source, config, spec, start.state if start is not None else None, cache), spec


def note_changed_code(run: Run, before: RunRecord, code: str) -> None:
    """A resumed run whose code has changed warns, and its run.json names both versions."""
    was = before.get("code", "")
    if not was or was.split()[-1] == code:
        return
    warnings.warn(
        f"The code of {run.config.method} has changed since the run in {run.folder.path} started.", stacklevel=2
    )
    run.folder.write("run.json", run_file({**before, "code": f"{was} {code}"}))


__all__ = ["Stopped", "load", "summary", "train"]
