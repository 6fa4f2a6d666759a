"""`proud label-next`."""

from __future__ import annotations

import shlex
import warnings

from rich.markup import escape

from proud.cli.flags.label_next import LabelNextArguments
from proud.cli.show import console, messages_for
from proud.files import check_output, is_stdout
from proud.methods import METHODS, method_class
from proud.model.format import read_run
from proud.model.label_next import Pick, suggest
from proud.report.figures.pictures import ListedImage
from proud.report.sheet import write_sheet


def run(arguments: LabelNextArguments) -> int:
    with messages_for(arguments.out):
        return label_next(arguments)


def label_next(arguments: LabelNextArguments) -> int:
    page = None if is_stdout(arguments.out) else arguments.out.with_suffix(".html")
    if page is not None:
        check_output(page, arguments.overwrite)
    picks = suggest(
        arguments.run,
        arguments.out,
        k=arguments.k,
        data=arguments.data,
        root=arguments.root,
        overwrite=arguments.overwrite,
        skip_bad=arguments.skip_bad,
        follow_links=arguments.follow_links,
        max_pixels=arguments.max_pixels,
        device=arguments.device,
        progress=True,
    )
    method = method_flag(str(read_run(arguments.run)["config"].get("method", "")))
    where = "FILE" if is_stdout(arguments.out) else str(arguments.out)
    sites = ", ".join(f"{escape(name)} {len(found)}" for name, found in picks.items())
    console.print(f"Images to label: {sites} → {escape(where)}", soft_wrap=True)
    if page is not None:
        lead = f"In the order of their value. Labels go into the column label of {where}; the model guesses."
        images = {name: [listed(one) for one in found] for name, found in picks.items()}
        write_sheet(page, images, "proud label-next", lead)
        console.print(f"What they look like: {escape(str(page))}", soft_wrap=True)
    console.print(
        "Fill in the column label (the guess is the model's and may be wrong), then: "
        f"[bold]proud train … {method}--labels {escape(shlex.quote(where))}[/bold]",
        soft_wrap=True,
    )
    return 0


def listed(pick: Pick) -> ListedImage:
    return ListedImage(pick.image, pick.path, pick.guess, f"uncertainty {pick.doubt:.2f}")


def method_flag(name: str) -> str:
    """Another method, if the run's own cannot use added labels."""
    if name not in METHODS or method_class(name).uses_known_labels:
        return ""
    warnings.warn(f"{name} does not support --labels: train with another method, as below.", stacklevel=2)
    return "--method proud-plus "
