"""Images that are there more than once: known by their content, whatever their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from proud.data.catalog import Entry


class Row(NamedTuple):
    """One image, known by what is in it. Sorting by the first field alone orders by content."""

    content: str
    entry: Entry


def copies_of(rows: Sequence[Row]) -> list[list[int]]:
    """The places of each image that is there more than once. A file that cannot be read is a copy of no other."""
    times = Counter(row.content for row in rows if row.content)
    places: dict[str, list[int]] = {content: [] for content, count in times.items() if count > 1}
    for place, row in enumerate(rows if places else ()):
        if row.content in places:
            places[row.content].append(place)
    return list(places.values())


def under_two_classes(name: str, rows: Sequence[Row]) -> str:
    """A sentence about images of a labeled domain that have copies in other classes, else ''."""
    copies = ([rows[place].entry for place in places] for places in copies_of(rows))
    found = [entries for entries in copies if len({entry.label for entry in entries}) > 1]
    if not found:
        return ""
    one = found[0][0]
    other = next(entry for entry in found[0] if entry.label != one.label)
    count = "1 image" if len(found) == 1 else f"{len(found)} images"
    return (
        f"{count} of {name} {'is' if len(found) == 1 else 'are'} there under more than one class, such as "
        f"{one.location} ({one.label}) and {other.location} ({other.label}): keep each in the right class alone."
    )


def on_both_sides(name: str, train: Sequence[Row], held: Sequence[Row]) -> str:
    """A sentence about validation images that are trained on too, as a split of the data's own may have it, else ''."""
    trained_on = {row.content for row in train}
    found = [row for row in held if row.content in trained_on]
    if not found:
        return ""
    verb = "is" if len(found) == 1 else "are"
    return (
        f"{len(found)} of the {len(held)} validation images of {name} {verb} also trained on, such as "
        f"{found[0].entry.location}: what is measured there is too good. Keep copies on one side of the split."
    )


def also_learned_from(name: str, count: int, images: int) -> str:
    """A sentence about a test domain of which `count` images are trained on too, else ''."""
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    says = "says little about unseen data" if 2 * count >= images else "is not that of unseen data alone"
    return f"{count} of the {images} images of {name} {verb} also learned from: its accuracy {says}."
