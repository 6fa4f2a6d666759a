"""What is held out: stratified by class in the labeled domain (whole groups, if stated), by content hash elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from proud.data.checks import ImageRow, copies_of

VALIDATION_STREAM = 0x76616C
"""Separates the validation draw from every other use of the same seed."""

MOST_OVER = 1.5  # times its share of a class that whole groups may hold out, where smaller ones can be chosen


Keys = Collection[object]
Split = tuple[list[ImageRow], list[ImageRow]]


def split_labeled(
    rows: list[ImageRow], val: float, seed: int, *, ships_split: bool, before: Collection[str] = ()
) -> Split:
    """(train, validation). Stratified: of each class its share, at least one, but never its only image.

    Copies of one image stay together; copies under two classes are trained on. `before`: marks of the validation
    images of the model that a run starts from, which was trained on the others; those that are still there are kept.
    """
    if ships_split:
        held = [row for row in rows if row.entry.split == "val"]
        return [row for row in rows if row.entry.split == "train"], held if val > 0 else []
    if val == 0:
        return rows, []
    if kept := _held_before(rows, before):
        return _apart(rows, kept)
    if any(row.entry.group for row in rows):
        return _apart(rows, _held_groups(rows, val, seed))
    with_it: dict[int, list[int]] = {}
    not_drawn: set[int] = set()
    for places in copies_of(rows):
        of_one_class = len({rows[place].entry.label for place in places}) == 1
        not_drawn.update(places[1:] if of_one_class else places)
        with_it[places[0]] = places
    by_class: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if place not in not_drawn:
            by_class.setdefault(row.entry.label or "", []).append(place)
    random = np.random.default_rng([VALIDATION_STREAM, seed])
    chosen: set[int] = set()
    for label in sorted(by_class):
        places = by_class[label]
        count = min(max(1, round(len(places) * val)), len(places) - 1)
        for place in random.permutation(places)[:count].tolist():
            chosen.update(with_it.get(place, [place]))
    return _apart(rows, chosen)


def mark(row: ImageRow) -> str:
    """By which an image is recognised in another run."""
    return row.content[:16]


def _apart(rows: list[ImageRow], chosen: set[int]) -> Split:
    """The other rows, and those at the chosen places."""
    others = [row for place, row in enumerate(rows) if place not in chosen]
    return others, [row for place, row in enumerate(rows) if place in chosen]


def _held_before(rows: list[ImageRow], before: Collection[str]) -> set[int]:
    """Places of the images that were validation images before, with their copies and groups."""
    units = _units(rows) if before else []
    return {place for unit in units if any(mark(rows[at]) in before for at in unit) for place in unit}


def _held_groups(rows: list[ImageRow], val: float, seed: int) -> set[int]:
    """Places of the validation images: whole groups, until each class has its share. Every class is still trained on.

    Groups that exceed the share by half are left out; a class that gets no image that way gets its smallest group.
    """
    together = _units(rows)
    in_class = Counter(row.entry.label for row in rows)
    wanted = {label: max(1, round(count * val)) for label, count in in_class.items()}
    held: Counter[str | None] = Counter()
    chosen: set[int] = set()
    drawn = [together[number] for number in np.random.default_rng([VALIDATION_STREAM, seed]).permutation(len(together))]

    def hold_out(unit: list[int], least: Mapping[str | None, int], most: float) -> None:
        """If a class of the unit has fewer than `least` images so far, and none gets too many, or all."""
        here = Counter(rows[place].entry.label for place in unit)
        needed = any(held[label] < least[label] for label in here)
        fits = all(held[label] + count <= most * wanted[label] for label, count in here.items())
        if needed and fits and all(held[label] + count < in_class[label] for label, count in here.items()):
            held.update(here)
            chosen.update(unit)

    for unit in drawn:
        hold_out(unit, wanted, MOST_OVER)
    for unit in sorted(drawn, key=len):
        hold_out(unit, dict.fromkeys(wanted, 1), math.inf)
    return chosen


def _units(rows: list[ImageRow]) -> list[list[int]]:
    """Images with the same content or of the same group belong together; any other one is alone."""
    return joined([[key for key in (("content", row.content), ("group", row.entry.group)) if key[1]] for row in rows])


def joined(keys: Sequence[Keys]) -> list[list[int]]:
    """Places that share a key, directly or through others, in their order. One without keys is alone."""
    first_of: dict[object, int] = {}
    parent = list(range(len(keys)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for place, here in enumerate(keys):
        for key in here:
            ends = root(first_of.setdefault(key, place)), root(place)
            parent[max(ends)] = min(ends)
    found: dict[int, list[int]] = {}
    for place in range(len(keys)):
        found.setdefault(root(place), []).append(place)
    return list(found.values())


def split_unlabeled(rows: list[ImageRow], held_out: float | None, *, ships_split: bool) -> list[ImageRow]:
    """The rows to train on. Without a shipped split the content's hash decides, so hidden labels have no influence."""
    if ships_split:
        return [row for row in rows if row.entry.split == "train"]
    if held_out is None:
        return rows
    return [row for row in rows if not row.content or int(row.content[:8], 16) / 2**32 >= held_out]
