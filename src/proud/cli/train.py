"""`proud train`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from proud.cli.exit import STOPS, say_stopped
from proud.cli.flags.train import TrainArguments
from proud.cli.show import console, show_sites, show_warning, unreadable
from proud.config import Options
from proud.distributed.ranks import join
from proud.errors import UserError
from proud.files import refuse_stdout
from proud.manifest import Files
from proud.model.format import read_run
from proud.nets.sites import about_found_sites
from proud.stored import DomainRecord, ResultRecord, TaskRecord
from proud.training.loop import Progress
from proud.training.progress_lines import watching
from proud.training.run import train
from proud.training.run_folder import default_folder
from proud.training.tensorboard import TensorBoard
from proud.trust.fitted import promises_of
from proud.trust.intervals import accuracy_interval

MOST_CLASSES = 20  # that are shown


def run(arguments: TrainArguments) -> int:
    folder = arguments.options.out or default_folder(arguments.run)
    refuse_stdout(folder, "a run")
    started, before = time.monotonic(), run_id(Path(folder))
    if arguments.notice and not arguments.options.quiet:
        console.print(arguments.notice, markup=False, highlight=False, soft_wrap=True)
    with join(arguments.options.device) as group:
        try:
            with watchers(arguments, folder, group.rank) as watch:
                result = train(
                    arguments.run,
                    arguments.settings,
                    arguments.options,
                    data=arguments.catalog,
                    watch=watch,
                    group=group,
                )
            if group.rank == 0:
                show_result(result, time.monotonic() - started)
        except STOPS as stop:
            return 130 if group.rank else say_stopped(stop, how_to_go_on(Path(folder), arguments.options, before))
    return 0


def how_to_go_on(folder: Path, options: Options, before: str) -> str:
    """After a stop in any phase: advice that never costs the run. `before`: the id of the run that was there first."""
    now = run_id(folder)
    if not now or (now == before and not options.resume):  # nothing has been written yet
        return "The same command starts it again."
    if Files(folder).stamps is not None:
        return f"The run in {folder} is complete."
    how = "" if options.resume else " with --resume instead of --overwrite" if options.overwrite else " and --resume"
    return f"Continue with the same command{how}: the run is in {folder}"


def run_id(folder: Path) -> str:
    """Empty if there is no run."""
    try:
        return str(read_run(folder).get("id", "of an earlier version"))
    except UserError:
        return ""


@contextmanager
def watchers(arguments: TrainArguments, folder: str, rank: int) -> Iterator[Callable[[Progress], None]]:
    """The progress and, on request, TensorBoard; one function that notifies both."""
    options = arguments.options
    with ExitStack() as stack:

        def first_lines() -> str:
            task = read_run(Path(folder))["task"]
            sites = escape(about_found_sites(task))
            return "\n".join(filter(None, [classes_of(task), sites, promises_of(task, options.folds)]))

        shown = watching(arguments.run.method, not (options.quiet or rank > 0), console, first_lines)
        notified: list[Callable[[Progress], None]] = [stack.enter_context(shown)]
        if options.tensorboard and rank == 0:
            notified.append(stack.enter_context(TensorBoard(Path(folder), options.resume)))

        def notify(now: Progress) -> None:
            for each in notified:
                each(now)

        yield notify


def show_result(result: ResultRecord, seconds: float) -> None:
    folder = result["folder"]
    task = read_run(Path(folder))["task"]
    table = Table(title=f"{escape(folder)} ({seconds:.0f} s)", title_justify="left")
    table.add_column("domain")
    table.add_column("role")
    table.add_column("images", justify="right")
    table.add_column("accuracy, mean of the last epochs (95 % interval)")
    for name, domain in task["domains"].items():
        table.add_row(escape(name), domain["role"], str(domain["images"]), domain_result(result, name, domain))
    console.print(table)
    console.print(classes_of(task))
    if task["skipped"]:
        console.print(f"{unreadable(len(task['skipped']))} skipped (listed in run.json).")
    show_lowest_recall(result, task)
    for text in result.get("warnings", []):
        show_warning(text)
    show_sites(Path(folder))
    console.print(
        f"Next: [bold]proud predict {escape(shlex.quote(folder))} IMAGES --out predictions.csv[/bold]", soft_wrap=True
    )


def show_lowest_recall(result: ResultRecord, task: TaskRecord) -> None:
    """The class that is missed most, on the unseen domain or else on validation images."""
    role = "test" if "test_recall" in result else "labeled"
    recalls = result["test_recall"] if role == "test" else result.get("val_recall", [])
    name = next((name for name, domain in task["domains"].items() if domain["role"] == role), "")
    found = [(recall, label) for recall, label in zip(recalls, task["classes"], strict=False) if recall is not None]
    if found and name:
        recall, label = min(found)
        where = name if role == "test" else f"validation images of {name}"
        domain = task["domains"][name]
        counts = domain.get("per_class", {}) if role == "test" else domain.get("validation_per_class", {})
        shown = accuracy_interval(recall, counts.get(label, 0)) or f"{100 * recall:.1f} %"
        console.print(f"lowest recall: {escape(label)}, {shown} on {escape(where)}", highlight=False)


def classes_of(task: TaskRecord) -> str:
    """The labeled domain's classes with their numbers of images: a wrong folder level shows here."""
    for name, domain in task["domains"].items():
        if domain["role"] == "labeled":
            counts = [f"{label} {count}" for label, count in domain.get("per_class", {}).items()]
            more = [f"… {len(counts) - MOST_CLASSES} more"] if len(counts) > MOST_CLASSES else []
            return escape(f"{len(counts)} classes in {name}: {', '.join(counts[:MOST_CLASSES] + more)}")
    return ""


def domain_result(result: ResultRecord, name: str, domain: DomainRecord) -> str:
    role = domain["role"]
    if role == "labeled" and "val_accuracy" in result:
        return f"{accuracy_interval(result['val_accuracy'], domain['validation'])} on its validation images"
    if role == "test" and "test_accuracy" in result:
        return str(accuracy_interval(result["test_accuracy"], domain["images"]))
    first, last = result.get("domains_first", {}).get(name), result.get("domains_last", {}).get(name)
    if role == "unlabeled" and first and last and "accuracy" in first and "accuracy" in last:
        right = accuracy_interval(last["accuracy"], last.get("audited", domain["images"]))
        return f"pseudo-labels {100 * first['accuracy']:.1f} % → {right}"
    return "–"
