"""Checks of what was read: copies of one image, and images that are nearly black."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from proud.data.catalog import Entry

DARKEST_USABLE = 24  # of 255: images without a brighter pixel are nearly black


class ImageRow(NamedTuple):
    """One image and the hash of its content. Sorting by the first field orders by content."""

    content: str
    entry: Entry


# ---- copies


def copies_of(rows: Sequence[ImageRow]) -> list[list[int]]:
    """The places of each image that occurs more than once. An unreadable file is a copy of no other."""
    times = Counter(row.content for row in rows if row.content)
    places: dict[str, list[int]] = {content: [] for content, count in times.items() if count > 1}
    for place, row in enumerate(rows if places else ()):
        if row.content in places:
            places[row.content].append(place)
    return list(places.values())


def under_two_classes(name: str, rows: Sequence[ImageRow]) -> str:
    """A warning about images of a labeled domain that have copies in other classes."""
    copies = ([rows[place].entry for place in places] for places in copies_of(rows))
    found = [entries for entries in copies if len({entry.label for entry in entries}) > 1]
    if not found:
        return ""
    one = found[0][0]
    other = next(entry for entry in found[0] if entry.label != one.label)
    count = "1 image" if len(found) == 1 else f"{len(found)} images"
    return (
        f"{count} of {name} {'is' if len(found) == 1 else 'are'} there under more than one class, such as "
        f"{one.location} ({one.label}) and {other.location} ({other.label}): keep each in the right class only."
    )


def on_both_sides(name: str, train: Sequence[ImageRow], held: Sequence[ImageRow]) -> str:
    """A warning about validation images that are also trained on, as a shipped split may have."""
    trained_on = {row.content for row in train}
    found = [row for row in held if row.content in trained_on]
    if not found:
        return ""
    verb = "is" if len(found) == 1 else "are"
    return (
        f"{len(found)} of the {len(held)} validation images of {name} {verb} also trained on, such as "
        f"{found[0].entry.location}: validation accuracy is too high. Keep copies on one side of the split."
    )


def shared_groups(name: str, here: Iterable[str], trained_on: Iterable[str], what: str) -> str:
    """A warning about groups, such as patients, whose images are both measured on and trained on."""
    common = sorted(set(here) & set(trained_on) - {""})
    if not common:
        return ""
    groups = "1 group" if len(common) == 1 else f"{len(common)} groups"
    return (
        f"{groups} of {what} {name} {'is' if len(common) == 1 else 'are'} also trained on, such as {common[0]!r}: its "
        "accuracy is not that of new groups."
    )


def held_out_too_many(name: str, held: int, per_class: Iterable[int], share: float) -> str:
    """A warning about groups so large that far more is held out than asked for. `per_class`: all images of each."""
    images = [*per_class]
    if held <= 2 * sum(max(1, round(count * share)) for count in images):
        return ""
    return (
        f"{held} of the {sum(images)} images of {name} are held out for validation, because groups stay together: "
        f"{100 * share:g} % were asked for. Smaller groups, or --val 0, leave more to train on."
    )


def also_learned_from(name: str, count: int, images: int) -> str:
    """A warning about a test domain of which `count` images are also trained on."""
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    says = "says little about unseen data" if 2 * count >= images else "is not that of unseen data alone"
    return f"{count} of the {images} images of {name} {verb} also trained on: its accuracy {says}."


# ---- brightness


def evenly(count: int, most: int) -> Tensor:
    """`most` of `count` rows, evenly spaced; or all rows."""
    some = min(count, most)
    return torch.arange(some) * count // max(some, 1)


def nearly_black(name: str, images: Tensor) -> str:
    """A warning about a domain of dark images."""
    some = images[evenly(len(images), 100)]
    brightest = int(some.max()) if len(some) else 255
    return too_dark(f"The images of {name}", brightest) if 0 < brightest < DARKEST_USABLE else ""


def too_dark(images: str, brightest: int) -> str:
    return (
        f"{images} are nearly black: no value above {brightest} of 255. If they are 12-bit greys in 16-bit files, "
        "rescale them to the full range first."
    )
