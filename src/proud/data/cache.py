"""Images decoded once and kept on disk, for data that does not fit in memory: memory-mapped files.

One folder per domain, format and state of its files, named by a hash of all paths, sizes and modification times:
    hashes.u8   [N, 32]       SHA-256 of each file's content, in the catalog's order (zeros: unreadable)
    order.i64   [N]           places in the catalog, by content
    images.u8   [N, 3, S, S]  in that order
    steps.jsonl               one line per finished piece of a build; an interrupted one continues there
    done.json                 checksums of all pieces, written last: the cache is valid only with it
Nothing here is ever executed or unpickled: bytes and JSON only.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proud.data.cache_build import ROWS_PER_PIECE, Build, CachedFiles, locations, read_description, root_of
from proud.data.catalog import Catalog, DomainFiles
from proud.data.decode import PixelFormat
from proud.data.file_states import PendingStates
from proud.errors import UserError
from proud.files import open_own, user_cache

AUTOMATIC_BYTES = 3 << 30  # of pixels; below, memory holds them
COPIED_BYTES = 1 << 28  # a part of the images up to this size is copied into memory
NEVER, AUTO = "none", "auto"


class MappedDomain(NamedTuple):
    """A domain's images by content. `order`: their places in the catalog; `contents`: their hashes ("": unreadable)."""

    order: list[int]
    contents: list[str]
    images: Tensor
    bad: dict[int, str]  # row → why it cannot be used
    folder: Path

    def take(self, rows: Sequence[int]) -> Tensor:
        return part_of(self.images, rows, self.folder)


def part_of(images: Tensor, rows: Sequence[int], folder: Path | None) -> Tensor:
    """These rows, in their order: all of them without a copy; with a folder, many as an anonymous mapped file in it."""
    if len(rows) == len(images):
        return images
    shape = (len(rows), *images.shape[1:])
    chosen = torch.tensor(rows, dtype=torch.int64)
    if folder is None or len(rows) * images[0].numel() <= COPIED_BYTES:
        return images[chosen]
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-") as file:
        for piece in chosen.split(ROWS_PER_PIECE):
            file.write(images[piece].numpy().tobytes())
        file.flush()
        return _mapped(Path(file.name), shape)


def cache_folder(wanted: str, pixel_bytes: int) -> Path | None:
    """Where to keep decoded images: `auto` keeps many in the user's cache folder, and few in memory only."""
    if wanted == NEVER or (wanted == AUTO and pixel_bytes < AUTOMATIC_BYTES):
        return None
    if wanted != AUTO:
        return Path(wanted)
    return user_cache() / "images"


def request_states(catalog: Catalog, domains: Iterable[DomainFiles]) -> PendingStates:
    """Start looking up the states of all files that will be mapped."""
    groups = {domain.name: locations(domain) for domain in domains}
    return PendingStates(root_of(catalog), groups)


def map_domain(
    catalog: Catalog,
    domain: DomainFiles,
    pixels: PixelFormat,
    folder: Path,
    progress: bool = False,
    states: PendingStates | None = None,
    verify: bool = False,
) -> MappedDomain:
    """Open the domain's cache; build or repair it first if necessary. One process builds, the others wait.

    `verify`: read all of it, and all files it was made from.
    """
    files = CachedFiles(catalog, domain, states)
    home = folder / files.key(pixels)
    with _writing(home):
        home.mkdir(parents=True, exist_ok=True)
        with _held(home / "lock"):
            build = Build(home, files, pixels, progress)
            done = build.intact(verify)
            if done is None:
                done = build.run()
                _remove_older(folder, home, build.identity)
    order = np.fromfile(home / "order.i64", dtype="<i8")
    text = np.fromfile(home / "hashes.u8", dtype=np.uint8).reshape(-1, 32)[order].tobytes().hex()
    contents = [text[start : start + 64] for start in range(0, len(text), 64)]
    for row, content in enumerate(contents):
        if content != "0" * 64:
            break
        contents[row] = ""  # unreadable ones come first
    bad = {int(row): str(reason) for row, reason in done["bad"].items()}
    return MappedDomain(
        order.tolist(), contents, _mapped(home / "images.u8", (len(order), 3, pixels.side, pixels.side)), bad, home
    )


def _mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    size = int(np.prod(shape))
    if not size:
        return torch.empty(shape, dtype=torch.uint8)
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8).view(shape)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    handle = open_own(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _writing(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"The image cache in {home.parent} cannot be written: {error.strerror or error}. Finished parts are kept; "
            "choose another folder with --cache DIR, or use --cache none."
        ) from error


def _remove_older(folder: Path, newest: Path, identity: dict[str, Any]) -> None:
    """Remove caches of the same domain from before its files changed."""
    for path in folder.glob("*/done.json"):
        about = read_description(path)
        if path.parent != newest and about is not None and about["made_from"] == identity:
            shutil.rmtree(path.parent, ignore_errors=True)
