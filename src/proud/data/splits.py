"""What is held out: by class where labels may be seen, by content where they may not."""

from __future__ import annotations

import numpy as np

from proud.data.copies import Row, copies_of

VALIDATION_STREAM = 0x76616C
"""Sets the validation draw apart from every other use of the same seed."""


def split_labeled(rows: list[Row], val: float, seed: int, *, ships_split: bool) -> tuple[list[Row], list[Row]]:
    """(train, validation). Drawn per class: its share, at least one, but never a class's only image.

    Copies of one image are drawn as one; those that stand under two classes are trained on.
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


def split_unlabeled(rows: list[Row], held_out: float | None, *, ships_split: bool) -> list[Row]:
    """The rows to train on. Without a shipped split, the content's hash decides: no hidden label can shape it."""
    if ships_split:
        return [row for row in rows if row.entry.split == "train"]
    if held_out is None:
        return rows
    return [row for row in rows if not row.content or int(row.content[:8], 16) / 2**32 >= held_out]
