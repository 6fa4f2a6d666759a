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
from proud.model.compare import Disagreement, disagreement
from proud.model.verdict import Verdict, page_of, read_comparison, record_of, verdict
from proud.report.figures.pictures import ListedImage
from proud.report.sheet import sheet_bytes
from proud.text import some

SHOWN_PAIRS, MOST_NAMES = 10, 30


def run(arguments: CompareArguments) -> int:
    return tell_verdict(arguments) if arguments.labels else draw(arguments)


def draw(arguments: CompareArguments) -> int:
    if not arguments.images.is_dir():
        raise UserError(f"{arguments.images} is not a folder: name the folder with the site's images.")
    check_outputs(arguments.out, arguments.overwrite)
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
    if found.files:
        found.write(arguments.out, sheet(arguments.out, found))
        ask_for_labels(arguments, found)
    return 0


def tell_verdict(arguments: CompareArguments) -> int:
    """The images were classified when they were drawn."""
    table = Path(arguments.labels)
    if not table.is_file():
        raise UserError(f"--labels {arguments.labels}: no such file.")
    show_verdict(arguments, verdict(arguments.first, arguments.second, arguments.images, table))
    return 0


def check_outputs(out: Path, overwrite: bool) -> None:
    """Before all images are classified. Even --overwrite never replaces someone else's JSON file."""
    if out.suffix.lower() in (".html", ".json"):
        raise UserError(
            f"--out {out}: a page (.html) and a record (.json) are written beside the table: give it another ending, "
            f"e.g. --out {out.with_suffix('.csv')}."
        )
    check_output(out, overwrite)
    page, record = page_of(out), record_of(out)
    check_output(page, overwrite)
    check_output(record, overwrite)
    if record.exists():
        try:
            read_comparison(record)
        except UserError as error:
            raise UserError(f"{record} is no record of `proud compare`: choose another --out, or remove it.") from error


def sheet(out: Path, found: Disagreement) -> bytes:
    images = [ListedImage(image, path, "", "") for path, image in found.pictures()]
    return sheet_bytes({found.folder: images}, "proud compare", f"Labels go into the column label of {out}.")


def show_disagreement(arguments: CompareArguments, found: Disagreement) -> None:
    if found.skipped:
        show_plain(f"{unreadable(len(found.skipped))} skipped:\n{first_bad_files(found.skipped)}")
    show_counts(arguments, len(found.files), found.images)
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


def show_counts(arguments: CompareArguments, disagreements: int, images: int) -> None:
    share = 100 * disagreements / images
    show_plain(f"A: {arguments.first}\nB: {arguments.second}")
    show_plain(f"They give different labels to {disagreements} of {images} images ({share:.1f} %).")


def ask_for_labels(arguments: CompareArguments, found: Disagreement) -> None:
    words = ["proud", "compare", str(arguments.first), str(arguments.second), str(arguments.images)]
    command = shlex.join([*words, "--labels", str(arguments.out)])
    classes = ", ".join(found.classes) if len(found.classes) <= MOST_NAMES else some(found.classes)
    every = len(found.sample) == len(found.files)
    show_plain(
        f"{'All of them' if every else f'{len(found.sample)} of them, drawn at random'} → {arguments.out}\n"
        f"What they look like: {page_of(arguments.out)}\n"
        f"Fill in the column label for all of them ({classes}), then: {command}\n"
        f"Keep {record_of(arguments.out)} beside the table: the verdict needs it."
    )


def show_verdict(arguments: CompareArguments, told: Verdict) -> None:
    show_counts(arguments, told.disagreements, told.difference.images)
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
