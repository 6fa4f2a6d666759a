"""One memory budget for all decoders of this process, however many threads decode at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from proud.data.bad import BadImage

BYTES_PER_PIXEL = 12  # the image, its RGB copy, a turned copy
PROGRESSIVE_BYTES = 6  # per pixel of a progressive JPEG, at whatever size it is decoded
COSTLY = {"WEBP": 20, "DICOM": 40}  # these decoders keep more copies
LARGE_FILE = 16_000_000  # bytes; such files are in memory one at a time


class MemoryBudget:
    """Bytes that may be taken at one time; who asks for more than is left waits."""

    def __init__(self) -> None:
        self.taken = 0
        self.most_taken = 0
        self._changed = threading.Condition()

    @contextmanager
    def taking(self, wanted: int, limit: int) -> Iterator[None]:
        """`wanted` must not exceed `limit`: nobody could ever give it."""
        with self._changed:
            self._changed.wait_for(lambda: self.taken + wanted <= limit or not self.taken)
            self.taken += wanted
            self.most_taken = max(self.most_taken, self.taken)
        try:
            yield
        finally:
            with self._changed:
                self.taken -= wanted
                self._changed.notify_all()


BUDGET = MemoryBudget()
ONE_LARGE_FILE = threading.Lock()


@contextmanager
def decoding(width: int, height: int, kind: str, max_pixels: int, also: int = 0) -> Iterator[None]:
    """Wait for the memory that decoding takes; `kind`: the format, `also`: more bytes. BadImage if it exceeds the whole
    budget, which is enough for one image of `max_pixels` million pixels in most formats."""
    cost = width * height * COSTLY.get(kind, BYTES_PER_PIXEL) + also
    limit = max_pixels * 1_000_000 * BYTES_PER_PIXEL
    if cost > limit:
        raise BadImage(
            f"decoding {width} × {height} pixels of {kind} takes {cost / 1e9:.1f} GB, more than {limit / 1e9:.1f} GB "
            "(raise --max-pixels, or save it as PNG or JPEG)"
        )
    with BUDGET.taking(cost, limit):
        yield
