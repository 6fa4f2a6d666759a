"""What is held out: stratified by class in the labeled domain, by content hash in unlabeled ones."""

from __future__ import annotations

import numpy as np

from proud.data.checks import ImageRow, copies_of

VALIDATION_STREAM = 0x76616C
"""Separates the validation draw from every other use of the same seed."""


def split_labeled(
    rows: list[ImageRow], val: float, seed: int, *, ships_split: bool
) -> tuple[list[ImageRow], list[ImageRow]]:
    """(train, validation). Stratified: of each class its share, at least one, but never its only image.

    Copies of one image stay together; copies under two classes are trained on.
    """
    if ships_split:
        held = [row for row in rows if row.entry.split == "val"]
        return [row for row in rows if row.entry.split == "train"], held if val > 0 else []
    if val == 0:
        return rows, []
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
    train = [row for place, row in enumerate(rows) if place not in chosen]
    return train, [row for place, row in enumerate(rows) if place in chosen]


def split_unlabeled(rows: list[ImageRow], held_out: float | None, *, ships_split: bool) -> list[ImageRow]:
    """The rows to train on. Without a shipped split the content's hash decides, so hidden labels have no influence."""
    if ships_split:
        return [row for row in rows if row.entry.split == "train"]
    if held_out is None:
        return rows
    return [row for row in rows if not row.content or int(row.content[:8], 16) / 2**32 >= held_out]
