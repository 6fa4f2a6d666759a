"""Near-copies: one picture under two names, recompressed, rescaled, recoloured, or shifted or cropped by a few percent.

An image's signature is the logarithm of its spectrum's magnitudes at 32×32 grey pixels, without the trend that all
pictures share (less energy in finer detail). A shift only changes the spectrum's phase. Two images are near-copies if
the correlation of their signatures is at least `ALIKE`, which was chosen on PACS and Digits-DG: see
benchmarks/near_copies.py. Simple drawings of one object are alike, too, and so are digits and icons: images below
`SMALLEST_SIDE` pixels are not compared.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate, normalize

from proud.config import SMALL_SIDE

ALIKE = 0.9
SMALLEST_SIDE = SMALL_SIDE
SIDE = 32
FINEST = 11  # waves per side
QUIET = 20.0  # magnitudes far below count as equal: noise of compression
FLATTEST = 2.0  # of 255: a smaller standard deviation is a blank image, alike to any other
AT_ONCE = 256  # images
GREY = (0.299, 0.587, 0.114)


def signatures(images: Tensor) -> Tensor:
    """[N,3,S,S] uint8, S at least 32 -> unit vectors [N,D]; zero for a blank image, which is alike to none."""
    return torch.cat([_signatures(piece) for piece in images.split(AT_ONCE)]) if len(images) else torch.empty(0, 0)


def near_copies(first: Tensor, second: Tensor | None = None) -> list[tuple[int, int]]:
    """Rows of signatures in `first`, each with its most alike row of `second` or, without it, of the rows before."""
    found: list[tuple[int, int]] = []
    if second is not None and not len(second):
        return found
    for start in range(0, len(first), AT_ONCE):
        end = start + AT_ONCE
        alike = first[start:end] @ (first[:end] if second is None else second).T
        if second is None:
            alike.tril_(start - 1)
        best, place = alike.max(1)
        rows = (best >= ALIKE).nonzero().flatten().tolist()
        found += [(start + row, int(place[row])) for row in rows]
    return found


def _signatures(images: Tensor) -> Tensor:
    window, waves, trend = _constants()
    small = interpolate(images, size=(SIDE, SIDE), mode="bilinear", antialias=True)
    grey = (small * torch.tensor(GREY).view(3, 1, 1)).sum(1)
    centred = grey - (grey * window).sum((1, 2), keepdim=True) / window.sum()
    spectrum = torch.fft.fft2(centred * window).abs().flatten(1)[:, waves]
    values = (spectrum + QUIET).log()
    values = values - values.mean(1, keepdim=True)
    values = normalize(values - (values @ trend)[:, None] * trend, dim=1)
    return values * (grey.std((1, 2)) >= FLATTEST)[:, None]


@cache
def _constants() -> tuple[Tensor, Tensor, Tensor]:
    """The window [32,32], the waves as places in the spectrum [D], and the trend over the logarithm of their number."""
    line = torch.hann_window(SIDE + 2, periodic=False)[1:-1]
    places = [
        (row, column)
        for row in range(FINEST + 1)
        for column in range(-FINEST, FINEST + 1)
        if 0 < row**2 + column**2 <= FINEST**2 and (row > 0 or column > 0)  # the others are the same, conjugated
    ]
    trend = torch.tensor(places).float().norm(dim=1).log()
    waves = torch.tensor([row * SIDE + column % SIDE for row, column in places])
    return line[:, None] * line, waves, normalize(trend - trend.mean(), dim=0)
