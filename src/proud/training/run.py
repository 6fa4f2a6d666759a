"""One run from its config: read the data, build the network, train, save what the run leaves behind."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import proud
from proud.config import NOTHING, Options, RunConfig, check, config_difference, flat
from proud.data.assemble import assemble
from proud.data.native import native_side
from proud.data.benchmarks import catalog_for
from proud.data.domain import Task
from proud.errors import UserError
from proud.methods import method_class
from proud.methods.base import Method, MethodConfig
from proud.methods.context import make_context
from proud.models import choose_model, model_spec
from proud.training.files import read_json, replacing, write_json
from proud.training.loop import LAST_EPOCHS, Loop, Progress, Stopped, plain_epoch

FORMAT = "proud-run-1"
MODEL_FORMAT = "proud-model-1"


def load_task(run: RunConfig, progress: bool = False) -> tuple[Task, str]:
    """The run's images, and the name of its network."""
    catalog = catalog_for(run.data, run.root or None)
    model = choose_model(run.model, native_side(catalog, run.labeled))
    size = model_spec(model, 2, run.size or None).size
    task = assemble(
        catalog,
        labeled=run.labeled,
        test=None if run.test == NOTHING else run.test,
        unlabeled=run.unlabeled or None,
        size=size,
        val=run.val,
        seed=run.seed,
        skip_bad=run.skip_bad,
        progress=progress,
    )
    return task, model


def train(
    run: RunConfig,
    method_config: MethodConfig,
    options: Options,
    *,
    task: Task | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Train and save; returns the run's result, which is also in OUT/result.json."""
    check(run, method_config)
    folder = Path(options.out or default_folder(run))
    config = flat(run, method_config)
    finished = prepare_folder(folder, config, options)
    if finished is not None:
        return finished
    device = choose_device(options.device)
    threads = choose_threads(folder, options.threads)
    if task is None:
        task, model = load_task(run, progress=not options.quiet)
    else:
        model = choose_model(run.model, task.size)
    spec = model_spec(model, len(task.training.classes), task.size)
    precision = ("bf16" if device.type == "cuda" else "fp32") if run.precision == "auto" else run.precision
    context = make_context(task.training, spec, device, weights=run.weights, seed=run.seed, precision=precision)
    method = method_class(run.method)(method_config, context)
    about = {"task": task.report, "model": asdict(spec), "threads": threads, **environment(device)}
    write_json(folder / "run.json", {"format": FORMAT, "config": config, **about})
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
        )
        loop.restore()
        records = loop.run()
    save_model(folder, method, task, config)
    save_outputs(folder, loop)
    result = summary(records) | {"folder": str(folder)}
    write_json(folder / "result.json", result)
    return result


def choose_epoch(method: Method, options: Options, device: torch.device) -> Callable[..., Any]:
    if not options.fast or device.type != "cuda":
        return plain_epoch
    from proud.training.fast import FastEpochs

    return FastEpochs(method)


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores of a run: means over the last five epochs, pseudo-label accuracies at the start and the end."""
    result: dict[str, Any] = {"epochs": len(records)}
    for name in ("val_accuracy", "test_accuracy"):
        values = [record[name] for record in records[-LAST_EPOCHS:] if name in record]
        if values:
            result[name] = fmean(values)
    labeled = [record["domains"] for record in records if "domains" in record]
    if labeled:
        result["domains_first"], result["domains_last"] = labeled[0], labeled[-1]
    return result


# ---- the run's folder


def default_folder(run: RunConfig) -> str:
    data = Path(run.data).stem
    return str(Path("runs") / f"{data}-{run.labeled}-{run.test}-{run.method}-{run.seed}")


def prepare_folder(folder: Path, config: dict[str, Any], options: Options) -> dict[str, Any] | None:
    """Make the folder ours. Returns the result if the run in it is finished and is to be resumed."""
    if options.resume and options.overwrite:
        raise UserError("--resume and --overwrite exclude each other.")
    description = folder / "run.json"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file, not a folder.")
    occupied = folder.is_dir() and any(folder.iterdir())
    if occupied and not description.is_file():
        raise UserError(f"{folder} holds files that are not a run's. Choose another --out.")
    if occupied and options.resume:
        difference = config_difference(read_run(folder)["config"], config)
        if difference:
            lines = "\n  ".join(difference)
            raise UserError(f"{folder} holds a run with other settings (stored → now):\n  {lines}\nUse the same, or another --out.")
        if (folder / "result.json").is_file():
            return read_json(folder / "result.json")
    elif occupied and not options.overwrite:
        raise UserError(f"{folder} holds a run already: go on with it by --resume, or replace it by --overwrite.")
    elif occupied:
        for name in ("checkpoints", "snapshots"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for path in folder.iterdir():
            if path.name in RUN_FILES or path.name.endswith(".part"):
                path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror}. Choose another --out.") from error
    return None


RUN_FILES = {
    "run.json",
    "records.jsonl",
    "timings.jsonl",
    "result.json",
    "model.safetensors",
    "model.json",
    "outputs.safetensors",
}


def read_run(folder: Path) -> dict[str, Any]:
    try:
        about = read_json(folder / "run.json")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} does not hold a run: run.json cannot be read ({error}).") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{folder}/run.json was not written by this program (format {FORMAT}).")
    return about


def save_model(folder: Path, method: Method, task: Task, config: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    tensors = {key: value.detach().cpu().contiguous() for key, value in method.network().state_dict().items()}
    with replacing(folder / "model.safetensors") as part:
        save_file(tensors, part, metadata={"format": MODEL_FORMAT})
    about = {"format": MODEL_FORMAT, "classes": list(task.training.classes), "spec": asdict(method.context.spec)}
    write_json(folder / "model.json", about | {"config": config})


def save_outputs(folder: Path, loop: Loop) -> None:
    """Logits and labels of source validation and test, for calibration and reports."""
    from safetensors.torch import save_file

    tensors = {}
    for name, (logits, labels) in loop.evaluator.logits(loop.method.network()).items():
        tensors |= {f"{name}/logits": logits.cpu(), f"{name}/labels": labels.cpu()}
    if tensors:
        with replacing(folder / "outputs.safetensors") as part:
            save_file(tensors, part)


# ---- the machine


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name!r} is not a device: use auto, cpu, cuda or cuda:N.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is available here; use --device cpu.")
    return device


def choose_threads(folder: Path, wanted: int) -> int:
    """Half the cores: threads that share a core with other work wait for each other at every step. A resumed run
    keeps its number, because sums depend on it."""
    if (folder / "run.json").is_file():
        wanted = wanted or int(read_run(folder).get("threads", 0))
    threads = wanted or max(1, len(os.sched_getaffinity(0)) // 2)
    torch.set_num_threads(threads)
    return threads


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, device and commit, stored beside every result."""
    import timm

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    versions = {"proud": proud.__version__, "python": platform.python_version(), "torch": torch.__version__, "timm": timm.__version__}
    return {"versions": versions, "device": f"{device.type}: {name}", "commit": commit()}


def commit() -> str | None:
    """The commit of the source tree this package runs from, if it is one."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=here, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask the loop to stop after the step; a second SIGINT interrupts at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def stop(number: int, frame: object) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["Stopped", "load_task", "summary", "train"]
