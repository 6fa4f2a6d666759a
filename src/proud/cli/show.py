"""What the commands show: progress bars, tables, and what to do next."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proud.config import Options, RunConfig
from proud.data.copies import also_learned_from
from proud.data.decode import first_bad_files
from proud.cli.exit import shown
from proud.errors import UserError
from proud.training.evaluator import audited_part
from proud.cli.progress import TrainingBar
from proud.distributed.group import ALONE, Group
from proud.training import loop
from proud.files import check_writable, read_json
from proud.training.run import Stopped, default_folder, read_run
from proud.training.run import train as train_run

if TYPE_CHECKING:
    from proud.cli.main import EvaluateArguments, PredictArguments
    from proud.methods.base import MethodConfig

console = Console()
MOST_CLASSES = 20  # that are shown


@contextmanager
def watchers(run: RunConfig, options: Options, folder: str, rank: int) -> Iterator[Callable[[loop.Progress], None]]:
    """The bar and, where asked for, TensorBoard; one function that tells both."""
    with ExitStack() as stack:

        def classes() -> str:
            return classes_of(read_run(Path(folder))["task"])

        bar = TrainingBar(run.method, options.quiet or rank > 0, console, classes)
        told: list[Callable[[loop.Progress], None]] = [stack.enter_context(bar)]
        if options.tensorboard and rank == 0:
            from proud.training.tensorboard import TensorBoard

            told.append(stack.enter_context(TensorBoard(Path(folder), options.resume)))

        def tell(now: loop.Progress) -> None:
            for each in told:
                each(now)

        yield tell


def train(run: RunConfig, settings: MethodConfig, options: Options, group: Group = ALONE) -> int:
    folder = options.out or default_folder(run)
    started = time.monotonic()
    try:
        with watchers(run, options, folder, group.rank) as watch:
            result = train_run(run, settings, options, watch=watch, group=group)
    except Stopped:
        if group.rank:
            return 130
        console.print(
            f"Stopped. Go on with the same command and [bold]--resume[/bold]; the run is in {escape(folder)}."
        )
        return 130
    if group.rank == 0:
        show_result(result, time.monotonic() - started)
    return 0


def show_result(result: dict[str, Any], seconds: float) -> None:
    folder = result["folder"]
    task = read_run(Path(folder))["task"]
    table = Table(title=f"{escape(folder)} ({seconds:.0f} s)", title_justify="left")
    table.add_column("domain")
    table.add_column("role")
    table.add_column("images", justify="right")
    table.add_column("accuracy, mean of the last epochs")
    for name, domain in task["domains"].items():
        table.add_row(escape(name), domain["role"], str(domain["images"]), _domain_result(result, name, domain))
    console.print(table)
    console.print(classes_of(task))
    if task["skipped"]:
        console.print(f"{len(task['skipped'])} unreadable images were left out; run.json names them.")
    for text in result.get("warnings", []):
        show_warning(text)
    show_sites(Path(folder))
    console.print(
        f"Next: [bold]proud predict {escape(shlex.quote(folder))} IMAGES --out predictions.csv[/bold]", soft_wrap=True
    )


def classes_of(task: dict[str, Any]) -> str:
    """The labeled domain's classes and how many images each has to learn from: a wrong folder level shows here."""
    for name, domain in task["domains"].items():
        if domain["role"] == "labeled":
            counts = [f"{label} {count}" for label, count in domain.get("per_class", {}).items()]
            more = [f"… {len(counts) - MOST_CLASSES} more"] if len(counts) > MOST_CLASSES else []
            return escape(f"{len(counts)} classes in {name}: {', '.join(counts[:MOST_CLASSES] + more)}")
    return ""


def show_plain(text: str) -> None:
    """Names of files may hold anything."""
    console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def show_warning(text: str) -> None:
    if text:
        console.print(f"[bold red]Look:[/bold red] {escape(text)}", soft_wrap=True)


def show_sites(folder: Path) -> None:
    """The verdict on each unlabeled domain, and where a label would help."""
    if not (folder / "diagnosis.json").is_file():
        return
    sites = read_json(folder / "diagnosis.json")
    for site in sites:
        console.print(escape(site["text"]), soft_wrap=True)
    if any(site["verdict"] != "sound" for site in sites):
        console.print(
            f"diagnosis.json names the images to look at; a few labels may help: [bold]proud label-next "
            f"{escape(shlex.quote(str(folder)))} --out {new_table()}[/bold]",
            soft_wrap=True,
        )


def new_table() -> str:
    """A name that no file has yet: the labels of an earlier round may be in one."""
    name, number = "extra.csv", 1
    while os.path.lexists(name):
        number += 1
        name = f"extra-{number}.csv"
    return name


def _domain_result(result: dict[str, Any], name: str, domain: dict[str, Any]) -> str:
    role = domain["role"]
    if role == "labeled" and "val_accuracy" in result:
        return f"{100 * result['val_accuracy']:.1f} % on its validation images"
    if role == "test" and "test_accuracy" in result:
        return f"{100 * result['test_accuracy']:.1f} %"
    first, last = (result.get(key, {}).get(name, {}) for key in ("domains_first", "domains_last"))
    if role == "unlabeled" and "accuracy" in first and "accuracy" in last:
        part = audited_part(last, domain["images"])
        return f"pseudo-labels {100 * first['accuracy']:.1f} % → {100 * last['accuracy']:.1f} %{part}"
    return "–"


def demo(out: Path, seed: int) -> int:
    """Source-only against ProUD: pen labeled, street unseen, texture and print unlabeled."""
    from proud.methods import method_config
    from proud.methods.presets import preset

    ours = any((out / method / "run.json").is_file() for method in ("erm", "proud"))
    if out.exists() and not ours and any(out.iterdir()):
        raise UserError(f"{out} holds other files. Choose another --out.")
    whole = (out / "report.html").is_file()
    if whole:  # begun anew: what a stop leaves is not whole
        (out / "report.html").unlink()
    console.print(
        "[bold]proud demo[/bold]: labels from [bold]pen[/bold] only, unlabeled images of [bold]texture[/bold] and "
        "[bold]print[/bold], tested on the unseen [bold]street[/bold]"
    )
    results = {}
    for method in ("erm", "proud"):
        begun = any((out / method).glob("checkpoints/*")) and not whole  # stopped before: it goes on
        if not begun:
            shutil.rmtree(out / method, ignore_errors=True)
        run = RunConfig(data="embedded", labeled="pen", test="street", method=method, seed=seed)
        settings = method_config(method, **preset("embedded"))
        # source-only needs no watching; its score is the mean of the last five epochs all the same
        options = replace(Options(), out=str(out / method), eval_every=4, device="auto", resume=begun)
        try:
            with TrainingBar("source-only" if method == "erm" else "ProUD", console=console) as bar:
                results[method] = train_run(run, settings, options, watch=bar)
        except Stopped:
            console.print("Stopped. The same command goes on.")
            return 130
    page = write_demo_report(out)
    show_demo(results, out)
    console.print(f"Look at it: [bold]{page.resolve().as_uri()}[/bold]", soft_wrap=True)
    return 0


def write_demo_report(out: Path) -> Path:
    from proud.report.page import write_report

    with console.status("report") as status:
        return write_report(
            [out / "erm", out / "proud"],
            out / "report.html",
            overwrite=True,
            told=lambda text: status.update(f"report: {escape(text)}"),
        )


def show_demo(results: dict[str, dict[str, Any]], out: Path) -> None:
    table = Table(title="Accuracy on the unseen domain (street)", title_justify="left")
    table.add_column("method")
    table.add_column("street", justify="right")
    table.add_column("pseudo-labels, start → end")
    for method, name in (("erm", "source-only (ERM)"), ("proud", "ProUD")):
        result = results[method]
        last = result.get("domains_last", {})
        labels = ", ".join(
            f"{escape(domain)} {100 * first['accuracy']:.0f} % → {100 * last[domain]['accuracy']:.0f} %"
            for domain, first in result.get("domains_first", {}).items()
        )
        table.add_row(name, f"{100 * result['test_accuracy']:.1f} %", labels or "–")
    console.print(table)
    gain = 100 * (results["proud"]["test_accuracy"] - results["erm"]["test_accuracy"])
    console.print(f"ProUD is {abs(gain):.1f} points {'above' if gain >= 0 else 'BELOW'} source-only.")
    console.print(f"Files of the runs: {escape(str(out / 'proud'))} and {escape(str(out / 'erm'))}")
    console.print(
        "Your own data, as folders ROOT/<domain>/<class>/* (class folders are needed in the labeled domain only):"
    )
    console.print(
        "  [bold].venv/bin/proud train --data ROOT --labeled NAME --test none --out runs/mine[/bold]", soft_wrap=True
    )


def check_out(path: Path, overwrite: bool) -> None:
    """Before long work: may its result be written there?"""
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists: choose another --out or add --overwrite.")
    check_writable(path)


def evaluate(arguments: EvaluateArguments) -> int:
    from proud.model.evaluate import evaluate_domain, write_measured

    if arguments.out:
        check_out(Path(arguments.out), arguments.overwrite)
    row = evaluate_domain(arguments)
    if arguments.out:
        write_measured(Path(arguments.out), row)
    table = Table(title=f"{escape(str(arguments.run))} on {escape(arguments.domain)}", title_justify="left")
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("accuracy", justify="right")
    for name, count, right in row["per_class"]:
        table.add_row(escape(name), str(count), f"{100 * right / count:.1f} %" if count else "–")
    table.add_section()
    table.add_row("all", str(row["images"]), f"{100 * row['accuracy']:.1f} %")
    console.print(table)
    if bad := row["left_out"]:
        images = "1 unreadable image was" if len(bad) == 1 else f"{len(bad)} unreadable images were"
        show_plain(f"{images} left out:\n{first_bad_files(bad)}")
    show_trust(row["trust"], arguments)
    show_learned(row, arguments.domain)
    if arguments.out:
        show_plain(f"All numbers: {arguments.out}")
    return 0


def show_learned(row: dict[str, Any], name: str) -> None:
    if row["trained_on"]:
        show_warning(f"{name} is the labeled domain: the model learned from most of these images.")
    if row["trained_on_without_labels"]:
        show_warning(f"{name} is an unlabeled domain: the model learned from these images, without their labels.")
    if row["known"]:
        images = "1 of these images" if row["known"] == 1 else f"{row['known']} of these images"
        show_warning(f"The model learned from {images}: it was told their labels (--labels).")
    show_warning(also_learned_from(name, row["copies"], row["images"]))


def show_trust(found: dict[str, Any] | None, arguments: EvaluateArguments) -> None:
    if found is None:
        console.print("The model was trained without validation images: nothing is calibrated.")
        return
    after = "" if found["temperature"] == 1 else f" → {100 * found['ece_after']:.1f} %"
    console.print(
        f"calibration error (ECE) {100 * found['ece_before']:.1f} %{after}; confidence: {found['calibration']}",
        soft_wrap=True,
    )
    console.print(
        f"prediction sets hold the true class for {100 * found['coverage']:.1f} % of the images (asked: "
        f"{100 * arguments.coverage:g} %), with {found['set_size']:.2f} classes on average"
    )
    wrong = "–" if found["risk"] is None else f"{100 * found['risk']:.1f} %"
    console.print(
        f"answers to {100 * found['answered']:.1f} % of the images, of these {wrong} wrong (allowed: "
        f"{100 * arguments.risk:g} %)"
    )
    console.print("Coverage and risk are promised for the labeled domain alone; here they are measured.")


def predict(arguments: PredictArguments) -> int:
    from proud.model.answers import Asked, promise
    from proud.model.predict import (
        find_images,
        load_model,
        predict_files,
        same_answer,
        write_left_out,
        write_predictions,
    )

    left_out = arguments.out.parent / f"{arguments.out.stem}-left-out{arguments.out.suffix}"
    if not arguments.images:
        raise UserError("Name the images or folders to classify: proud predict RUN IMAGES --out predictions.csv")
    asked = Asked(arguments.coverage, arguments.risk, arguments.sets, arguments.probabilities)
    for path in (arguments.out, left_out):
        check_out(path, arguments.overwrite)
    model = load_model(arguments.run, arguments.device)
    files = find_images(arguments.images)
    about = promise(model.trust, asked)
    rows, bad = predict_files(model, files, asked=asked, skip_bad=arguments.skip_bad, progress=True)
    write_predictions(arguments.out, rows, model.classes)
    write_left_out(left_out, bad)
    console.print(f"{len(rows)} images → {escape(str(arguments.out))}", soft_wrap=True)
    if bad:
        show_plain(f"{len(bad)} unreadable left out → {left_out}\n{first_bad_files(bad)}")
    console.print(about, soft_wrap=True)
    for text in (*model.warnings, same_answer(rows)):
        show_warning(text)
    return 0


def check_data(name: str, root: str) -> int:
    from proud.data.benchmarks import check

    report = check(name, root)
    table = Table(title=escape(name), title_justify="left")
    for column in ("domain", "found", "expected", "status"):
        table.add_column(column, justify="left" if column in ("domain", "status") else "right")
    for row in report.rows:
        table.add_row(escape(row.domain), str(row.found), str(row.expected), escape(row.status))
    console.print(table)
    console.print(escape(report.advice))
    return 0 if report.ok else 1
