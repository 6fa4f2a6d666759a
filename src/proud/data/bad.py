"""Why an image cannot be used."""

from __future__ import annotations


class BadImage(Exception):
    """One image cannot be used; the text says why."""


def check_pixels(width: int, height: int, most: int) -> None:
    """`most`: in millions."""
    if width * height > most * 1_000_000:
        raise BadImage(f"{width} × {height} pixels exceed the limit of {most} million (--max-pixels)")
