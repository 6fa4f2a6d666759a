"""`proud evaluate`."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from proud.cli.flags.evaluate import EvaluateArguments
from proud.cli.show import console, messages_for, show_plain, show_warning, unreadable
from proud.data.checks import also_learned_from
from proud.data.decode import first_bad_files
from proud.files import check_output, is_stdout
from proud.model.answers import AnswerOptions
from proud.model.evaluate import Evaluation, evaluate_domain
from proud.text import some
from proud.trust.intervals import accuracy_interval


def run(arguments: EvaluateArguments) -> int:
    with messages_for(arguments.out):
        return evaluate(arguments)


def evaluate(arguments: EvaluateArguments) -> int:
    to_stdout = is_stdout(arguments.out)
    if arguments.out and not to_stdout:
        check_output(Path(arguments.out), arguments.overwrite)
    found = evaluate_domain(
        arguments.run,
        arguments.domain,
        data=arguments.data,
        root=arguments.root,
        options=AnswerOptions(arguments.coverage, arguments.risk, arguments.sets),
        skip_bad=arguments.skip_bad,
        follow_links=arguments.follow_links,
        max_pixels=arguments.max_pixels,
        device=arguments.device,
        progress=True,
        against=Path(arguments.against) if arguments.against else None,
        adapt=arguments.adapt,
    )
    if arguments.out:
        found.write(Path(arguments.out))
    show_accuracy(found)
    if found.skipped:
        show_plain(f"{unreadable(len(found.skipped))} skipped:\n{first_bad_files(found.skipped)}")
    show_comparison(found)
    show_adapted(found)
    show_trust(found)
    show_warning(found.warning)
    show_training(found)
    if arguments.out and not to_stdout:
        show_plain(f"All numbers: {arguments.out}")
    return 0


def show_accuracy(found: Evaluation) -> None:
    show_plain(f"{found.model} on {found.domain}")
    table = Table()
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("accuracy (95 % interval)", justify="right")
    for each in found.per_class:
        table.add_row(escape(each.name), str(each.images), str(each.interval or "–"))
    table.add_section()
    table.add_row("all", str(found.images), str(found.interval))
    scores = found.scores
    table.add_row("balanced (mean of the classes)", "", str(scores.balanced_accuracy or "–"))
    table.add_row("macro F1", "", str(scores.macro_f1 or "–"))
    table.add_row("macro AUROC, one against the rest", "", str(scores.auroc or "–"))
    console.print(table)
    if scores.absent:
        show_plain(f"The last three are means over the classes that have images, without {some(scores.absent)}.")


def show_adapted(found: Evaluation) -> None:
    if found.plain is None:
        return
    show_plain(f"each image alone: {accuracy_interval(found.plain.accuracy, found.images)}; adapted: {found.interval}")
    show_plain(f"difference: {found.plain.difference.difference}")
    show_plain("Adapted answers come from all images of the site together: another protocol than that of the tables.")


def show_comparison(found: Evaluation) -> None:
    other = found.against
    if other is not None:
        here, there = ("adapted accuracy", ", each image alone") if found.plain else ("accuracy", "")
        show_plain(
            f"{here} minus that of {other.model}{there}, {accuracy_interval(other.accuracy, found.images)}, on the "
            f"same images: {other.difference.difference}"
        )


def show_training(found: Evaluation) -> None:
    """Warnings if the numbers are not those of unseen images."""
    name, seen = found.domain, found.trained_on
    if seen.labeled:
        show_warning(f"{name} is the labeled domain: the model was trained on most of these images.")
    if seen.unlabeled:
        show_warning(f"{name} is an unlabeled domain: the model was trained on these images, without their labels.")
    if seen.known:
        images = "1 of these images" if seen.known == 1 else f"{seen.known} of these images"
        show_warning(f"The model was trained on {images} with their labels (--labels).")
    show_warning(also_learned_from(name, seen.copies, found.images))


def show_trust(found: Evaluation) -> None:
    trust, options = found.trust, found.options
    if trust is None:
        console.print("The model was trained without validation images: nothing is calibrated.")
        return
    stages = [trust["ece_before"], trust["ece_after"]]
    if found.plain is not None or trust["temperature"] == 1:  # adapted answers are calibrated from the start
        stages = stages[1:]
    errors = " → ".join(f"{100 * error:.1f} %" for error in stages)
    console.print(f"calibration error (ECE) {errors}; confidence: {trust['calibration']}", soft_wrap=True)
    console.print(
        f"prediction sets contain the true class for {100 * trust['coverage']:.1f} % of the images (nominal: "
        f"{100 * options.coverage:g} %), with {trust['set_size']:.2f} classes on average",
        soft_wrap=True,
    )
    if trust["risk"] is None:
        answered = "no answers: the model abstains on all images"
    else:
        answered = (
            f"answers for {100 * trust['answered']:.1f} % of the images, of which {100 * trust['risk']:.1f} % are wrong"
        )
    console.print(f"{answered} (allowed errors: {100 * options.risk:g} %)", soft_wrap=True)
    console.print(
        "Coverage and risk are guaranteed on the labeled domain only; these are measured values.", soft_wrap=True
    )
