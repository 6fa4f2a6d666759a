"""Warnings about near-copies: among the images of sites, and between what is measured on and what is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from proud.data.near_copies import near_copies


class Compared(NamedTuple):
    """Images that are compared with others: where each one is, its content, and its signature [N,D]."""

    name: str
    places: Sequence[str]
    contents: Sequence[str]
    signs: Tensor
    groups: Sequence[str] = ()
    """of each image, where they are stated"""


def within(site: Compared) -> str:
    """A text about images of one site that are not of one group; equal images, which are copies, must be there once."""
    groups = site.groups or [""] * len(site.places)
    pairs = [pair for pair in near_copies(site.signs) if not groups[pair[0]] or len({groups[row] for row in pair}) > 1]
    if not pairs:
        return ""
    return (
        f"{looks(len(pairs), site.name)} like another one of it, such as {example(site, site, pairs)}. If they show "
        "the same thing, a CSV file with a column `group` keeps them on one side of the validation split."
    )


def between(one: Compared, other: Compared) -> str:
    """The same about two sites."""
    pairs = near_copies(other.signs, one.signs)
    if not pairs:
        return ""
    return (
        f"{looks(len(pairs), other.name)} like one of {one.name}, such as {example(other, one, pairs)}: if they are "
        "the same pictures, accuracy on one site is too high for a model trained on the other."
    )


def across(measured: Compared, trained: Sequence[Compared], what: str) -> str:
    """A warning about images to be measured on that look like some that are trained on; equal ones do not count."""
    known = {content for each in trained for content in each.contents}
    rows = [row for row, content in enumerate(measured.contents) if content not in known]
    found: dict[int, str] = {}
    for each in trained:
        for row, place in near_copies(measured.signs[rows], each.signs):
            found.setdefault(row, f"{measured.places[rows[row]]} and {each.places[place]}")
    if not found:
        return ""
    verb = "looks like an image that is" if len(found) == 1 else "look like images that are"
    return (
        f"{len(found)} of the {len(measured.places)} {what} {measured.name} {verb} trained on, such as "
        f"{next(iter(found.values()))}: if they are the same pictures, its accuracy is too high."
    )


def looks(count: int, site: str) -> str:
    return f"1 image of {site} looks" if count == 1 else f"{count} images of {site} look"


def example(first: Compared, second: Compared, pairs: Sequence[tuple[int, int]]) -> str:
    row, place = pairs[0]
    return f"{first.places[row]} and {second.places[place]}"
