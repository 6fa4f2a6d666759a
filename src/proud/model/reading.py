"""Any number of images, decoded piece by piece in bounded memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from proud.data.checks import DARKEST_USABLE, too_dark
from proud.data.decode import BadFile, PixelFormat, Source, bad_files_error, decode_all, with_bar
from proud.errors import UserError

PIECE = 512
DARK_SHARE = 0.1  # fewer dark images may be lens caps and blank scans


@dataclass
class Reading:
    """Which images to read, and how; afterwards `bad` names the unreadable ones."""

    sources: Sequence[Source]
    pixels: PixelFormat
    skip_bad: bool = False
    progress: bool = False
    remedy: str = "--skip-bad"
    bad: list[BadFile] = field(default_factory=list)

    def pieces(self) -> Iterator[tuple[list[int], Tensor]]:
        """Rows and pixels [N,3,side,side] of the readable images. All are tried before any is refused."""
        dark: list[int] = []
        starts = range(0, max(len(self.sources), 1), PIECE)
        done = (min(start, PIECE) for start in starts)  # in the piece before, by whoever takes the pieces
        for _, start in zip(with_bar(done, len(self.sources), self.progress, "Reading images"), starts, strict=True):
            images, kept, bad = decode_all(self.sources[start : start + PIECE], self.pixels, skip_bad=True)
            self.bad += bad
            dark += [value for value in images.amax((1, 2, 3)).tolist() if 0 < value < DARKEST_USABLE]
            if (kept or not len(self.sources)) and (self.skip_bad or not self.bad):
                yield [start + row for row in kept], images
        if self.bad and not self.skip_bad:
            raise bad_files_error(self.bad, self.remedy)
        readable = len(self.sources) - len(self.bad)
        if self.bad and not readable:
            raise none_readable(self.bad)
        if dark and len(dark) >= DARK_SHARE * readable:
            warnings.warn(too_dark(f"{len(dark)} of {readable} images", max(dark)), stacklevel=2)


def none_readable(bad: Sequence[BadFile]) -> UserError:
    first = f"{bad[0].path}: {bad[0].reason}"
    if len(bad) == 1:
        return UserError(f"The only image cannot be read: {first}")
    return UserError(f"None of the {len(bad)} images can be read; the first: {first}")
