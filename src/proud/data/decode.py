"""From image files to one uint8 tensor: every image is decoded once, to the same square format."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress

from proud.config import MAX_PIXELS, Square
from proud.data.bad import BadImage, check_pixels
from proud.data.dicom import dicom_image, is_dicom
from proud.data.memory_budget import LARGE_FILE, ONE_LARGE_FILE, PROGRESSIVE_BYTES, decoding
from proud.data.walk import FORMATS, MAX_BYTES
from proud.errors import UserError
from proud.files import open_plain
from proud.lazy import torch
from proud.printing import make_console

if TYPE_CHECKING:
    from torch import Tensor

Source = Path | bytes | np.ndarray
"""Where one image is: a file, a file's bytes, or pixels [H,W,1 or 3] uint8."""

ROWS_PER_JOB = 32
ROWS_PER_BAND = 256
GREY = (128, 128, 128)
SECONDS_BEFORE_BAR = 1.0
SECONDS_BETWEEN_LINES = 20.0
NAMED_BAD_FILES = 10


@dataclass(frozen=True)
class PixelFormat:
    """How images are stored: uint8 [3, side, side], and how non-square images become square."""

    side: int
    square: Square = "middle"
    max_pixels: int = MAX_PIXELS
    """of an image that is read, in millions"""


class BadFile(NamedTuple):
    path: str
    reason: str


def stored_side(size: int) -> int:
    """The side at which images are stored, 1/8 larger than the network's input: training takes random crops."""
    return round(size * 1.125)


def content_hash(source: Source) -> str:
    """SHA-256 of the file's bytes, or of an array's shape and pixels."""
    if isinstance(source, np.ndarray):
        return hashlib.sha256(repr(source.shape).encode() + source.tobytes()).hexdigest()
    with _few_large(source):
        return hashlib.sha256(_read(source)).hexdigest()


def hash_all(sources: Sequence[Source], *, progress: bool = False, description: str = "Reading") -> list[str]:
    """The content hash of every source; empty for an unreadable file, which decoding reports."""
    hashes = [""] * len(sources)

    def hash_row(row: int) -> None:
        try:
            hashes[row] = content_hash(sources[row])
        except BadImage:
            hashes[row] = ""

    in_threads(hash_row, len(sources), progress, description)
    return hashes


def decode(source: Source, pixels: PixelFormat) -> Tensor:
    """One image as uint8 [3, side, side], upright."""
    return torch.from_numpy(_decode_pixels(source, pixels).transpose(2, 0, 1).copy())


def decode_all(
    sources: Sequence[Source],
    pixels: PixelFormat,
    *,
    skip_bad: bool = False,
    progress: bool = False,
    description: str = "Decoding",
    names: Sequence[str] | None = None,
) -> tuple[Tensor, list[int], list[BadFile]]:
    """Decode into one tensor [K,3,side,side]; also returns its K source rows, and the bad files.

    Without `skip_bad` a bad file is an error. `names`: what to call each source in it.
    """
    images = torch.empty((len(sources), 3, pixels.side, pixels.side), dtype=torch.uint8)
    target = images.numpy()
    reasons: dict[int, str] = {}

    def decode_row(row: int) -> None:
        try:
            target[row] = _decode_pixels(sources[row], pixels).transpose(2, 0, 1)
        except BadImage as error:
            reasons[row] = str(error)

    Image.init()  # Pillow's lazy set-up is not thread-safe
    in_threads(decode_row, len(sources), progress, description)
    bad = [BadFile(names[row] if names else _name_of(sources[row], row), reasons[row]) for row in sorted(reasons)]
    if bad and not skip_bad:
        raise bad_files_error(bad)
    kept = [row for row in range(len(sources)) if row not in reasons]
    if bad:
        for place, row in enumerate(kept):  # in place: the tensor may be most of the memory
            target[place] = target[row]
    return images[: len(kept)], kept, bad


def bad_files_error(bad: Sequence[BadFile], remedy: str = "--skip-bad") -> UserError:
    images = "1 image" if len(bad) == 1 else f"{len(bad)} images"
    advice = f"Repair or remove them, or skip them: {remedy}"
    return UserError("\n".join([f"{images} cannot be used:", first_bad_files(bad), advice]))


def first_bad_files(bad: Sequence[BadFile]) -> str:
    """One per line with the reason, and how many more there are."""
    lines = [f"  {file.path}: {file.reason}" for file in bad[:NAMED_BAD_FILES]]
    if len(bad) > NAMED_BAD_FILES:
        lines.append(f"  … and {len(bad) - NAMED_BAD_FILES} more")
    return "\n".join(lines)


def _few_large(source: Path | bytes) -> AbstractContextManager[object]:
    """Large files are in memory one at a time."""
    try:
        large = (len(source) if isinstance(source, bytes) else Path(source).stat().st_size) > LARGE_FILE
    except (OSError, ValueError):  # reading says why
        large = False
    return ONE_LARGE_FILE if large else nullcontext()


def _read(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        with open_plain(source, MAX_BYTES) as file:
            return file.read()
    except OSError as error:
        raise BadImage(f"cannot be read ({error.strerror or error})") from error


def _decode_pixels(source: Source, pixels: PixelFormat) -> np.ndarray:
    """uint8 [side, side, 3]."""
    if isinstance(source, np.ndarray):
        rgb = np.ascontiguousarray(np.broadcast_to(source, (*source.shape[:2], 3)))
        return np.asarray(in_square(Image.fromarray(rgb), pixels))
    with _few_large(source):
        return _decode_content(_read(source), pixels)


def _decode_content(content: bytes, pixels: PixelFormat) -> np.ndarray:
    if not content:
        raise BadImage("the file is empty (0 bytes)")
    if is_dicom(content):
        return np.asarray(in_square(dicom_image(content, pixels.max_pixels), pixels))
    allow_pixels(pixels.max_pixels)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            check_pixels(width, height, pixels.max_pixels)
            image.draft(None, (2 * pixels.side, 2 * pixels.side))  # JPEG: decode at reduced size
            whole = PROGRESSIVE_BYTES * width * height if image.info.get("progressive") else 0
            with decoding(*image.size, image.format or "", pixels.max_pixels, also=whole):
                ImageOps.exif_transpose(image, in_place=True)  # a copy would lose a TIFF's bit depth
                return np.asarray(in_square(to_rgb(image), pixels))
    except (BadImage, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise BadImage("not an image, or an unsupported format") from error
    except Image.DecompressionBombError as error:
        raise BadImage(f"the pixels exceed the limit of {pixels.max_pixels} million (--max-pixels)") from error
    except Exception as error:  # Pillow raises errors of every kind on broken content
        raise BadImage(f"broken or truncated ({error})") from error


def pixels_of(image: Image.Image) -> np.ndarray:
    """uint8 [H,W,3] of a PIL image, as its file would be read."""
    check_pixels(image.width, image.height, MAX_PIXELS)
    tags = getattr(image, "tag_v2", None)
    turned = ImageOps.exif_transpose(image)
    if tags is not None:  # a copy loses a TIFF's bit depth
        turned.tag_v2 = tags  # type: ignore[attr-defined]
    return np.asarray(to_rgb(turned))


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB; transparency over white, greys of more than 8 bits scaled from their full range."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F":
        raise BadImage("floating-point pixels have no fixed range; save the image with 8 or 16 bits")
    if image.mode.startswith("I"):
        return Image.fromarray(_deep_grey_to_bytes(image)).convert("RGB")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return _over_white(image)
    return image.convert("RGB")


def _over_white(image: Image.Image) -> Image.Image:
    """Band by band: copies of the whole image would take several times its memory."""
    whole = Image.new("RGB", image.size)
    for top in range(0, image.height, ROWS_PER_BAND):
        band = image.crop((0, top, image.width, min(top + ROWS_PER_BAND, image.height)))
        band.info = image.info  # where a palette keeps its transparency
        rgba = band.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        whole.paste(Image.alpha_composite(white, rgba).convert("RGB"), (0, top))
    return whole


def _deep_grey_to_bytes(image: Image.Image) -> np.ndarray:
    bits = 16
    tags = getattr(image, "tag_v2", None)  # only TIFF states other depths
    if tags is not None:
        bits = int(tags.get(258, (bits,))[0])
    values = np.asarray(image)
    if bits > 16:  # Pillow holds these as signed numbers
        signed = tags is not None and tags.get(339, (1,))[0] == 2
        values = values.clip(min=0) if signed else values.view(np.uint32)
        bits = 31 if signed else 32
    shades = np.empty(values.shape, dtype=np.uint8)
    for top in range(0, len(values), ROWS_PER_BAND):
        band = values[top : top + ROWS_PER_BAND].astype(np.float64)
        shades[top : top + ROWS_PER_BAND] = np.rint(band * (255 / (2**bits - 1))).clip(0, 255)
    return shades


def in_square(image: Image.Image, pixels: PixelFormat) -> Image.Image:
    """Centre crop, or the whole image: padded with grey, or stretched."""
    (width, height), side = image.size, pixels.side
    if pixels.square == "stretch":
        return stretched(image, side)
    if pixels.square == "pad" and width != height:
        across, down = (max(1, round(side * length / max(width, height))) for length in (width, height))
        whole = Image.new("RGB", (side, side), GREY)
        small = resized(image, (across, down), (0, 0, width, height))
        whole.paste(small, ((side - across) // 2, (side - down) // 2))
        return whole
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    if short == side:
        return image.crop((left, top, left + short, top + short))
    around = margin(short, side)
    right, bottom = min(width, left + short + around), min(height, top + short + around)
    image = image.crop((max(0, left - around), max(0, top - around), right, bottom))
    left, top = min(left, around), min(top, around)
    return resized(image, (side, side), (left, top, left + short, top + short))


def margin(short: int, side: int) -> int:
    """How far the pixels that make an output pixel can reach beyond it."""
    return -(-short // side) + 1


def resized(image: Image.Image, size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    """A part of an image, first along its rows: with both axes at once, the order, and so the rounding, depends on
    Pillow's version."""
    (width, height), (left, top, right, bottom) = size, box
    across = image.resize((width, image.height), Image.Resampling.BILINEAR, box=(left, 0, right, image.height))
    return across.resize((width, height), Image.Resampling.BILINEAR, box=(0, top, width, bottom))


def stretched(image: Image.Image, side: int) -> Image.Image:
    """First along the longer axis: one pixel wide and a million high, it would become too large the other way."""
    if image.height <= image.width:
        return resized(image, (side, side), (0, 0, image.width, image.height))
    return stretched(image.transpose(Image.Transpose.TRANSPOSE), side).transpose(Image.Transpose.TRANSPOSE)


def allow_pixels(most: int) -> None:
    """Pillow refuses images of 179 million pixels by itself: raise its limit if ours was raised."""
    if most > MAX_PIXELS and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, most * 1_000_000)


def _name_of(source: Source, row: int) -> str:
    return str(source) if isinstance(source, Path) else f"image {row}"


def in_threads(work: Callable[[int], None], count: int, progress: bool = False, description: str = "") -> None:
    """Call `work` for every row in several threads: decoding, hashing and reading release the interpreter's lock."""
    given_up = threading.Event()

    def job(start: int) -> int:
        rows = range(start, min(start + ROWS_PER_JOB, count))
        for row in rows:
            if given_up.is_set():
                break
            work(row)
        return len(rows)

    with ThreadPoolExecutor(max_workers=_workers()) as pool:
        try:
            for _ in with_bar(pool.map(job, range(0, count, ROWS_PER_JOB)), count, progress, description):
                pass
        except BaseException:
            given_up.set()  # a stop does not wait for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(32, cores)


def with_bar(steps: Iterable[int], total: int, enabled: bool, description: str) -> Iterator[int]:
    """Pass on the steps; after a second, show a progress bar on stderr or, without a terminal, a line now and then."""
    if not enabled:
        yield from steps
        return
    console, begin, done = make_console(stderr=True), time.monotonic(), 0
    next_line = begin + SECONDS_BEFORE_BAR
    with ExitStack() as open_bar:
        bar: Progress | None = None
        for step in steps:
            done += step
            now = time.monotonic()
            if bar is None and console.is_terminal and now - begin > SECONDS_BEFORE_BAR:
                columns = (*Progress.get_default_columns(), MofNCompleteColumn())
                bar = open_bar.enter_context(Progress(*columns, console=console, transient=True))
                task = bar.add_task(escape(description), total=total)
            if bar is not None:
                bar.update(task, completed=done)
            elif now >= next_line and not console.is_terminal:
                next_line = now + SECONDS_BETWEEN_LINES
                console.print(f"{description}: {done} of {total}", markup=False, highlight=False, soft_wrap=True)
            yield step
