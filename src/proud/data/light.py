"""Images without light, and what to say of them."""

from __future__ import annotations

from torch import Tensor

from proud.data.decode import evenly

LIGHT = 24
"""Of 255: images without a value from here on are nearly black."""


def nearly_black(name: str, images: Tensor) -> str:
    """A sentence about a domain without light, else ''."""
    some = images[evenly(len(images), 100)]
    brightest = int(some.max()) if len(some) else 255
    return without_light(f"The images of {name}", brightest) if 0 < brightest < LIGHT else ""


def without_light(images: str, brightest: int) -> str:
    """Greys of 12 bits in files of 16 look so."""
    return (
        f"{images} are nearly black: no value above {brightest} of 255. If they are 12-bit greys in 16-bit files, "
        "stretch them to the whole range first."
    )
