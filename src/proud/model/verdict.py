"""Which of two models is better, from the filled-in table of `proud compare` and the record beside it. No image is
read: a folder that has changed since, or another device, changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proud.data.csv_table import LabelRow, read_labels
from proud.errors import UserError
from proud.files import MOST_JSON_BYTES, json_file, read_regular
from proud.model.export.about import weights_digest
from proud.stamps import sealed
from proud.stored import ComparedModel, ComparisonRecord
from proud.text import listed, some
from proud.trust.comparison import difference_interval
from proud.trust.intervals import Interval
from proud.typed import as_record, parse_sealed

FEWEST_LABELS = 5
DRAW_AGAIN = "draw again without --labels (with another --out, your labels stay)"


@dataclass(frozen=True)
class Verdict:
    """What the labels say about the accuracy of the first model minus that of the second."""

    difference: Interval
    disagreements: int
    labels: int
    first: int
    """labeled images on which the first model is right"""
    second: int
    drawn: int

    @property
    def better(self) -> str:
        """`first`, `second`, or empty if the interval contains 0."""
        return "first" if self.difference.low > 0 else "second" if self.difference.high < 0 else ""


def verdict(first: Path, second: Path, folder: Path, table: Path) -> Verdict:
    """The models may be named in either order. Only the drawn images count: others would have been picked by hand."""
    rows = read_labels(table)
    found = read_comparison(record_of(table))
    refuse_other_folder(found, folder, table)
    exchanged = are_exchanged(found, first, second, table)
    labels = labels_of(rows, found, table)
    known = [each for each in found["drawn"] if each["content"] in labels]
    if len(known) < (fewest := min(FEWEST_LABELS, len(found["drawn"]))):
        raise UserError(f"{table} has {len(known)} labels; at least {fewest} are needed.")
    a = sum(labels[each["content"]] == each["first"] for each in known)
    b = sum(labels[each["content"]] == each["second"] for each in known)
    a, b = (b, a) if exchanged else (a, b)
    difference = difference_interval(a, b, len(known), found["disagreements"], found["images"])
    return Verdict(difference, found["disagreements"], len(known), a, b, len(found["drawn"]))


def labels_of(rows: Sequence[LabelRow], found: ComparisonRecord, table: Path) -> dict[str, str]:
    """Content → label. The label of an image is that of all its copies."""
    refuse_unknown(rows, found["classes"], table)
    drawn = {each["content"] for each in found["drawn"]}
    contents = {each["path"]: each["content"] for each in found["drawn"]}
    labeled: dict[str, LabelRow] = {}
    problems, strangers = [], 0
    for row in rows:
        content = row.content or contents.get(row.path, "")
        before = labeled.setdefault(content, row)
        if content not in drawn:
            problems.append(f"line {row.line}: {row.path} was not drawn from these models and images")
            strangers += 1
        elif row.label != before.label:
            problems.append(
                f"line {row.line}: {row.path} is {row.label!r}, but the same image in line {before.line} is "
                f"{before.label!r}"
            )
    if strangers == len(rows):
        raise UserError(f"No image of {table} is in {record_of(table)}: name the table that was written with it.")
    if problems:
        raise UserError(listed(problems, table))
    return {content: row.label for content, row in labeled.items()}


def refuse_unknown(rows: Sequence[LabelRow], classes: Sequence[str], table: Path) -> None:
    known = set(classes)
    unknown = [
        f"line {row.line}: the class {row.label!r} is unknown; the models have: {some(classes)}"
        for row in rows
        if row.label not in known
    ]
    if unknown:
        raise UserError(listed(unknown, table))


# ---- the record


def record_of(table: Path) -> Path:
    """The file beside the table that holds what the verdict needs."""
    return table.with_suffix(".json")


def page_of(table: Path) -> Path:
    """The file beside the table that shows the images."""
    return table.with_suffix(".html")


def record_bytes(found: ComparisonRecord) -> bytes:
    return json_file(sealed({**as_record(found, ComparisonRecord)}))


def read_comparison(path: Path) -> ComparisonRecord:
    """UserError if it is missing, damaged or something else."""
    try:
        found = parse_sealed(read_regular(path, MOST_JSON_BYTES), ComparisonRecord)
        check_counts(found)
        return found
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing. `proud compare` wrote it with the table, and the verdict needs it: put it back beside "
            f"the table, under this name, or {DRAW_AGAIN}."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged, or not written by `proud compare` ({error}): restore it, or {DRAW_AGAIN}."
        ) from error


def check_counts(found: ComparisonRecord) -> None:
    """ValueError if the numbers contradict each other."""
    sizes, classes = found["strata"], set(found["classes"])
    drawn = Counter(each["stratum"] for each in found["drawn"])
    if any(number >= len(sizes) or count > sizes[number] for number, count in drawn.items()):
        raise ValueError("drawn: more images than the stratum has")
    if sum(sizes) != found["disagreements"] or found["disagreements"] > found["images"]:
        raise ValueError("disagreements: another number than that of the strata or images")
    if any(
        each["first"] == each["second"] or not {each["first"], each["second"]} <= classes for each in found["drawn"]
    ):
        raise ValueError("drawn: the answers are not two classes")


def compared_model(folder: Path) -> ComparedModel:
    """UserError if there is no model."""
    try:
        return {"name": str(folder), "weights": weights_digest(folder)}
    except OSError as error:
        raise UserError(f"{folder} holds no model: its weights cannot be read ({error.strerror or error}).") from error


def are_exchanged(found: ComparisonRecord, first: Path, second: Path, table: Path) -> bool:
    """Whether the models are named in the other order. UserError if they are not those of the record."""
    given = [compared_model(folder)["weights"] for folder in (first, second)]
    drawn = [found["first"]["weights"], found["second"]["weights"]]
    if given not in (drawn, drawn[::-1]):
        raise UserError(
            f"{table} was written for the models in {found['first']['name']} and {found['second']['name']}, which had "
            f"other weights than those in {first} and {second}: name those models, or {DRAW_AGAIN}."
        )
    return given != drawn


def folder_name(folder: Path) -> str:
    return folder.absolute().name


def refuse_other_folder(found: ComparisonRecord, folder: Path, table: Path) -> None:
    """By its name alone: the folder may have moved, or be gone."""
    if folder_name(folder) != found["folder"]:
        raise UserError(
            f"{table} was written for the images in a folder {found['folder']}, not {folder}: name that one (it is not "
            f"read again), or {DRAW_AGAIN}."
        )
