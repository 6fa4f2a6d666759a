"""`proud demo`: source-only training compared with ProUD; pen labeled, street unseen, texture and print unlabeled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.markup import escape
from rich.table import Table

from proud.cli.exit import STOPS, say_stopped
from proud.cli.flags.demo import DemoArguments
from proud.cli.show import console
from proud.config import Options, RunConfig
from proud.errors import UserError
from proud.files import refuse_stdout
from proud.held import HeldFolder, new_id
from proud.marks import MARK, mark_file, read_mark
from proud.methods import method_config
from proud.methods.presets import preset
from proud.model.evaluate import Evaluation, evaluate_domain
from proud.model.format import read_run
from proud.report.formats import PlainTable
from proud.report.page import write_report
from proud.stored import ResultRecord
from proud.training.progress_lines import watching
from proud.training.run import train
from proud.trust.intervals import accuracy_interval

TITLE = "Accuracy on the unseen domain (street), and pseudo-labels from start to end"
METHODS = {"erm": "source-only (ERM)", RunConfig.method: "ProUD"}


def run(arguments: DemoArguments) -> int:
    refuse_stdout(arguments.out, "a demo")
    try:
        return compare(arguments.out, arguments.seed)
    except STOPS as stop:
        return say_stopped(stop, "The same command continues.")


def compare(out: Path, seed: int) -> int:
    earlier = runs_of_earlier(out)
    console.print(
        "[bold]proud demo[/bold]: labels from [bold]pen[/bold] only, unlabeled images of [bold]texture[/bold] and "
        "[bold]print[/bold], tested on the unseen [bold]street[/bold]"
    )
    results = {}
    for method, name in METHODS.items():
        there = run_id(out / method)
        config = RunConfig(data="embedded", labeled="pen", test="street", method=method, seed=seed)
        settings = method_config(method, **preset("embedded", method=method))
        # the score is the mean of the last five epochs all the same
        options = Options(out=str(out / method), eval_every=4, device="auto")
        options = replace(options, resume=bool(there) and there not in earlier, overwrite=there in earlier)
        with watching(name, True, console) as watch:
            results[method] = train(config, settings, options, watch=watch)
    adapted = evaluate_domain(out / RunConfig.method, "street", adapt=True)
    page = write_demo_report(out, adapted)
    mark_runs(out)
    show_demo(results, out)
    show_adapted(adapted)
    console.print(f"Report: [bold]{page.resolve().as_uri()}[/bold]", soft_wrap=True)
    return 0


def runs_of_earlier(out: Path) -> list[str]:
    """The ids of the runs of a finished demo, which are replaced; any other run there continues if it has the same
    settings, and is refused if not. Only a folder with the mark of a demo is used."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file, not a folder.")
    with HeldFolder(out) as folder:
        if (mark := read_mark(folder)) is not None and mark["kind"] == "demo":
            return mark.get("runs", [])
        if folder.names():
            raise UserError(f"{out} has other files. Choose another --out.")
        folder.write(MARK, mark_file("demo", new_id()))
    return []


def mark_runs(out: Path) -> None:
    """They are the demo's own: the next one may replace them."""
    with HeldFolder(out) as folder:
        folder.write(MARK, mark_file("demo", new_id(), runs=[run_id(out / method) for method in METHODS]))


def run_id(folder: Path) -> str:
    """Empty if there is no run."""
    return read_run(folder, compare=False).get("id", "") if (folder / "run.json").is_file() else ""


def write_demo_report(out: Path, adapted: Evaluation) -> Path:
    with console.status("report") as status:
        return write_report(
            [out / method for method in METHODS],
            out / "report.html",
            overwrite=True,
            more_results=[adapted_table(adapted)],
            progress=lambda text: status.update(f"report: {escape(text)}"),
        )


def show_demo(results: dict[str, ResultRecord], out: Path) -> None:
    table = Table(title=TITLE, title_justify="left")
    table.add_column("method")
    table.add_column("street", no_wrap=True)
    table.add_column("right labels", no_wrap=True)
    table.add_column("certain labels", no_wrap=True)
    for method, name in METHODS.items():
        result = results[method]
        score = accuracy_interval(result["test_accuracy"], result["test_images"])
        table.add_row(name, str(score), changes(result, "accuracy"), changes(result, "certain"))
    console.print(table)
    source_only, ours = (results[method]["test_accuracy"] for method in METHODS)
    gain = 100 * (ours - source_only)
    console.print(f"ProUD is {abs(gain):.1f} points {'above' if gain >= 0 else 'BELOW'} source-only.")
    console.print(f"Files of the runs: {escape(' and '.join(str(out / method) for method in METHODS))}")
    console.print(
        "Your own data, as folders ROOT/<domain>/<class>/* (class folders are needed in the labeled domain only):"
    )
    console.print(
        "  [bold].venv/bin/proud train --data ROOT --labeled NAME --test none --out runs/mine[/bold]", soft_wrap=True
    )


def adapted_table(found: Evaluation) -> PlainTable:
    """The saved model on each image of the unseen domain alone, and on all of them together."""
    alone = found.plain or found
    answers = {"image by image": alone.accuracy, "all images together": found.accuracy}
    rows = [[name, str(accuracy_interval(value, found.images))] for name, value in answers.items()]
    caption = (
        "The saved model of ProUD. Together means `proud predict --adapt`: nothing is trained, but the answers use "
        "that all images come from one site. Not comparable with accuracies of images classified alone."
    )
    return PlainTable("Adapting to the unseen site", ["answers", found.domain], rows, caption)


def show_adapted(found: Evaluation) -> None:
    alone = found.plain or found
    console.print(
        f"The saved model of ProUD on street, image by image: {100 * alone.accuracy:.1f} %; all of its images together "
        f"([bold]proud predict --adapt[/bold]): {100 * found.accuracy:.1f} %.",
        soft_wrap=True,
        highlight=False,
    )


def changes(result: ResultRecord, signal: Literal["accuracy", "certain"]) -> str:
    """A share of each unlabeled domain's images, in the first and the last main epoch."""
    first, last = result.get("domains_first", {}), result.get("domains_last", {})
    return "\n".join(
        f"{escape(name)} {100 * first[name][signal]:.0f} → {100 * last[name][signal]:.0f} %" for name in first
    )
