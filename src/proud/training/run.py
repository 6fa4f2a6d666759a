"""One run from its config: read the data, build the network, train, save what the run leaves behind."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from proud.config import NOTHING, Options, RunConfig, check, choose_model, flat
from proud.data.task import assemble
from proud.data.benchmarks import catalog_for
from proud.data.types import Task
from proud.data.labels import read_labels, state_labels
from proud.data.native import native_side
from proud.errors import UserError
from proud.methods import method_class
from proud.methods.base import Method, MethodConfig
from proud.methods.context import make_context
from proud.distributed.group import ALONE, Group
from proud.nets.models import model_spec
from proud.distributed.ranks import check_method
from proud.files import replacing, write_json, write_tensors
from proud.training.run_folder import (
    FORMAT,
    check_folder,
    clear,
    default_folder,
    held,
    read_result,
    read_run,
    refuse_other_data,
    remove_if_empty,
)
from proud.training.loop import LAST_EPOCHS, Loop, Progress, Stopped, plain_epoch
from proud.machine import (
    choose_device,
    choose_threads,
    code_version,
    environment,
    making_many_objects,
    stop_signals,
)
from proud.training.memory import is_out_of_memory, too_large
from proud.training.outcome import collapses, last_prototypes, save_trust
from proud.training.reuse import Sharing

MODEL_FORMAT = "proud-model-1"


@making_many_objects()
def load_task(run: RunConfig, progress: bool = False, cache: str = "none") -> tuple[Task, str]:
    """The run's images, and the name of its network."""
    stated = read_labels(run.labels) if run.labels else []
    catalog = catalog_for(run.data, run.root or None)
    model = choose_model(run.model, native_side(catalog, run.labeled))
    size = model_spec(model, 2, run.size or None).size
    check_network(run, model, size)
    task = assemble(
        catalog,
        labeled=run.labeled,
        test=None if run.test == NOTHING else run.test,
        unlabeled=run.unlabeled or None,
        size=size,
        square=run.square,
        val=run.val,
        seed=run.seed,
        skip_bad=run.skip_bad,
        progress=progress,
        disk=cache,
    )
    return state_labels(task, stated, run.labels) if stated else task, model


def train(
    run: RunConfig,
    method_config: MethodConfig,
    options: Options,
    *,
    task: Task | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    group: Group = ALONE,
    sharing: Sharing | None = None,
) -> dict[str, Any]:
    """Train and save; returns the run's result, which is also in OUT/result.json.

    With a `group` of processes all of them call this; the first one writes, and it alone gets the result. `sharing`
    (for one process) is what other runs of a bench have done already.
    """
    with group.together():
        check(run, method_config, options)
        check_method(group, run.method, method_class(run.method), method_config.batch_size)
    folder = Path(options.out or default_folder(run))
    config = flat(run, method_config)
    with ExitStack() as stack:
        if group.rank == 0 and not folder.exists():
            stack.callback(remove_if_empty, folder)  # a run that is refused leaves nothing

        def take() -> None:
            check_folder(folder, config, options)
            stack.enter_context(held(folder))

        group.from_first(take)
        return _train(run, method_config, options, folder, config, task, watch, group, sharing)


def _train(
    run: RunConfig,
    method_config: MethodConfig,
    options: Options,
    folder: Path,
    config: dict[str, Any],
    task: Task | None,
    watch: Callable[[Progress], None],
    group: Group,
    sharing: Sharing | None,
) -> dict[str, Any]:
    before, finished = group.from_first(lambda: stored_run(folder, config, options))
    if finished is not None:
        if task is not None:  # whose images were read anyway
            with group.together():
                refuse_other_data(folder, before["task"], task.report)
        return finished
    with group.together():
        task, method, about = build(run, method_config, options, folder, before, task, group)
    group.prepare(method)
    device = method.context.device
    if before is None and group.rank == 0:
        # only now, when all that can be wrong has been looked at, may an earlier run go
        stored = {"format": FORMAT, "config": config, **about}
        json.dumps(stored)  # what cannot be written must not cost an earlier run
        clear(folder)
        write_json(folder / "run.json", stored)
    with stop_signals() as should_stop:
        loop = Loop(
            method,
            task,
            folder,
            config,
            eval_every=options.eval_every,
            run_epoch=choose_epoch(method, options, device),
            watch=watch,
            should_stop=should_stop,
            sharing=sharing,
        )
        loop.restore()
        try:
            records = loop.run()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            context = method.context
            del method, loop  # their memory is needed for finding out
            raise UserError(too_large(error, method_class(run.method), method_config, context)) from None
    prototypes = last_prototypes(loop)
    if group.rank:
        return {}
    # in the precision in which the saved model answers: what it promises is fitted on these
    outputs = loop.evaluator.logits(method.network(), "fp32")
    trust = save_trust(folder, loop, records, prototypes, outputs)
    told = {"warnings": wrong} if (wrong := collapses(loop, outputs)) else {}
    save_model(folder, method, task, config, trust, told)
    result = summary(records) | {"folder": str(folder)} | told
    write_json(folder / "result.json", result)
    return result


def stored_run(folder: Path, config: dict[str, Any], options: Options) -> tuple[dict[str, Any] | None, Any]:
    """The description of a run to be resumed, and its result if it is finished."""
    before = check_folder(folder, config, options)  # again: another process may have finished it meanwhile
    result = None if before is None else read_result(folder)
    return before, result and result | {"folder": str(folder)}  # wherever it was when it was trained


def build(
    run: RunConfig,
    method_config: MethodConfig,
    options: Options,
    folder: Path,
    before: dict[str, Any] | None,
    task: Task | None,
    group: Group,
) -> tuple[Task, Method, dict[str, Any]]:
    """Images, networks, and what run.json says of them."""
    device = choose_device(group.device(options.device))
    # sums depend on the number of threads: a resumed run keeps it
    kept = (before or {}).get("threads", 0) if (before or {}).get("processes", 1) == group.size else 0
    threads = choose_threads(options.threads or kept, group.here)
    if task is None:
        task, model = load_task(run, not options.quiet and group.rank == 0, options.cache)
    else:
        model = choose_model(run.model, task.size)
        check_network(run, model, task.size)
    check_known(task, run.method)
    if before is not None:
        refuse_other_data(folder, before["task"], task.report)
    spec = replace(model_spec(model, len(task.training.classes), task.size), square=run.square)
    precision = ("bf16" if device.type == "cuda" else "fp32") if run.precision == "auto" else run.precision
    context = make_context(
        task.training, spec, device, weights=run.weights, seed=run.seed, precision=precision, group=group
    )
    method = method_class(run.method)(method_config, context)
    about = {"task": task.report, "model": asdict(method.context.spec), "threads": threads}
    about |= {"code": code_version(run.method), **environment(device)}
    if before is not None and group.rank == 0:
        note_changed_code(folder, before, about)
    for text in method.cautions() if before is None and group.rank == 0 else ():
        warnings.warn(text, stacklevel=2)
    if group.size > 1:
        about["processes"] = group.size
    return task, method, about


def note_changed_code(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A run that goes on with other code than it began with says so, and its run.json names both."""
    was = before.get("code") or ("" if before.get("commit") == now["commit"] else "earlier")
    if not was or was.split()[-1] == now["code"]:
        return
    method = before["config"].get("method")
    warnings.warn(f"The code of {method} has changed since the run in {folder} began.", stacklevel=2)
    write_json(folder / "run.json", before | {"code": f"{was} {now['code']}"})


def check_known(task: Task, method: str) -> None:
    if any(domain.known is not None for domain in task.training.unlabeled) and not method_class(method).USES_KNOWN:
        raise UserError(f"The method {method!r} has no use for labels of unlabeled images (--labels): proud has.")


def check_network(run: RunConfig, model: str, size: int) -> None:
    """Before any image is decoded: can this network be built?"""
    if model == "digits" and size % 16:
        raise UserError(f"The digits net needs a --size that is a multiple of 16, got {size}.")
    if model == "digits" and run.weights not in ("auto", NOTHING):
        raise UserError("--weights FILE is for timm backbones; the digits net always starts from random weights.")
    if run.weights not in ("auto", NOTHING) and not Path(run.weights).is_file():
        raise UserError(f"--weights {run.weights}: no such file. Use `auto`, `none` or a safetensors file.")


def choose_epoch(method: Method, options: Options, device: torch.device) -> Callable[..., Any]:
    if not options.fast or device.type != "cuda":
        return plain_epoch
    if method.context.group is not ALONE:
        if method.context.group.rank == 0:
            warnings.warn("plain steps: CUDA graphs are for one process without torchrun", stacklevel=2)
        return plain_epoch
    from proud.training.fast import FastEpochs

    return FastEpochs(method)


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores of a run: means over the last five epochs, pseudo-label accuracies at the start and the end."""
    result: dict[str, Any] = {"epochs": len(records)}
    last = [record for record in records[-LAST_EPOCHS:] if record["stage"] == records[-1]["stage"]]
    for name in ("val_accuracy", "test_accuracy"):
        values = [record[name] for record in last if name in record]
        if values:
            result[name] = fmean(values)
    labeled = [record["domains"] for record in records if "domains" in record]
    if labeled:
        result["domains_first"], result["domains_last"] = labeled[0], labeled[-1]
    return result


def save_model(
    folder: Path,
    method: Method,
    task: Task,
    config: dict[str, Any],
    trust: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    with replacing(folder / "model.safetensors") as part:
        write_tensors(part, method.network().state_dict(), MODEL_FORMAT)
    about = {"format": MODEL_FORMAT, "classes": list(task.training.classes), "spec": asdict(method.context.spec)}
    write_json(folder / "model.json", about | {"config": config} | (more or {}) | ({"trust": trust} if trust else {}))


__all__ = ["Stopped", "choose_device", "default_folder", "load_task", "read_run", "summary", "train"]
