"""`proud compare`."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from proud.cli.flags.compare import CompareArguments
from proud.cli.show import console, show_plain, unreadable
from proud.data.decode import first_bad_files
from proud.errors import UserError
from proud.files import check_output
from proud.model.compare import Disagreement, Verdict, disagreement, filled_in, verdict
from proud.model.load import load_model
from proud.report.figures.pictures import ListedImage
from proud.report.sheet import write_sheet
from proud.text import some

SHOWN_PAIRS, MOST_NAMES = 10, 30


def run(arguments: CompareArguments) -> int:
    if not arguments.images.is_dir():
        raise UserError(f"{arguments.images} is not a folder: name the folder with the site's images.")
    page = arguments.out.with_suffix(".html")
    if arguments.labels:
        check_labels(arguments)
    else:
        check_output(arguments.out, arguments.overwrite)
        check_output(page, arguments.overwrite)
    found = disagreement(
        arguments.first,
        arguments.second,
        arguments.images,
        skip_bad=arguments.skip_bad,
        follow_links=arguments.follow_links,
        max_pixels=arguments.max_pixels,
        device=arguments.device,
        progress=True,
    )
    show_disagreement(arguments, found)
    if arguments.labels:
        show_verdict(arguments, found, verdict(found, Path(arguments.labels)))
    elif found.files:
        found.write(arguments.out)
        images = [ListedImage(image, path, "", "") for path, image in found.pictures()]
        write_sheet(
            page, {found.folder: images}, "proud compare", f"Labels go into the column label of {arguments.out}."
        )
        ask_for_labels(arguments, found, page)
    return 0


def check_labels(arguments: CompareArguments) -> None:
    """Before all images are classified."""
    table = Path(arguments.labels)
    if not table.is_file():
        raise UserError(f"--labels {arguments.labels}: no such file.")
    filled_in(table, load_model(arguments.first, "cpu").classes)


def show_disagreement(arguments: CompareArguments, found: Disagreement) -> None:
    if found.skipped:
        show_plain(f"{unreadable(len(found.skipped))} skipped:\n{first_bad_files(found.skipped)}")
    share = 100 * len(found.files) / found.images
    show_plain(f"A: {arguments.first}\nB: {arguments.second}")
    show_plain(f"They give different labels to {len(found.files)} of {found.images} images ({share:.1f} %).")
    if not found.files:
        show_plain("Their accuracies are equal there, so there is nothing to label.")
        return
    table = Table()
    for name in ("A", "B", "images"):
        table.add_column(name, justify="right" if name == "images" else "left")
    for a, b, count in found.pairs[:SHOWN_PAIRS]:
        table.add_row(escape(a), escape(b), str(count))
    console.print(table)
    if len(found.pairs) > SHOWN_PAIRS:
        show_plain(f"and {len(found.pairs) - SHOWN_PAIRS} other pairs of labels")


def ask_for_labels(arguments: CompareArguments, found: Disagreement, page: Path) -> None:
    words = ["proud", "compare", str(arguments.first), str(arguments.second), str(arguments.images)]
    command = shlex.join([*words, "--labels", str(arguments.out)])
    classes = ", ".join(found.classes) if len(found.classes) <= MOST_NAMES else some(found.classes)
    every = len(found.sample) == len(found.files)
    show_plain(
        f"{'All of them' if every else f'{len(found.sample)} of them, drawn at random'} → {arguments.out}\n"
        f"What they look like: {page}\n"
        f"Fill in the column label for all of them ({classes}), then: {command}"
    )


def show_verdict(arguments: CompareArguments, found: Disagreement, told: Verdict) -> None:
    if told.labels < told.drawn:
        missing = told.drawn - told.labels
        show_plain(
            f"{missing} of the {told.drawn} drawn images have no label. The interval holds only if they were left out "
            "regardless of what they show."
        )
    show_plain(f"Of {told.labels} labeled images, A is right on {told.first} and B on {told.second}.")
    value, low, high = told.difference.points
    show_plain(
        f"Accuracy of A minus that of B on all {told.difference.images} images: {value} points (95 % interval {low} to "
        f"{high})"
    )
    if told.better:
        name = arguments.first if told.better == "first" else arguments.second
        show_plain(f"Verdict: {'A' if told.better == 'first' else 'B'} is better here ({name}).")
    else:
        show_plain("Verdict: these labels do not show which one is better here.")
