"""A folder that is held open: a run's files are written through one, and in no other way.

Names are resolved from the folder's handle and never through links. Neither a folder that was put in its place nor what
a link in it points to is ever changed. A file is replaced atomically and synced, or appended to and synced.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from proud.errors import UserError
from proud.files import make_folder, part_name, user_errors

PART = re.compile(r"\..+\.[0-9a-f]{8}\.proud-part")  # what `part_name` makes
OPENING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # neither links nor waiting for the other end of a pipe
IN_THE_WAY = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO}


class HeldFolder:
    """Made when the first file is written. Folders inside are opened when they are used."""

    def __init__(self, path: Path, parent: HeldFolder | None = None) -> None:
        self.path, self.parent = path, parent
        self._handle = -1
        self._inside: dict[str, HeldFolder] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for folder in self._inside.values():
            folder.close()
        self._inside.clear()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def sub(self, name: str) -> HeldFolder:
        """The folder of that name in this one."""
        if name not in self._inside:
            self._inside[name] = HeldFolder(self.path / name, self)
        return self._inside[name]

    def handle(self, make: bool = False) -> int:
        """FileNotFoundError if there is no such folder; with `make` it is made."""
        if self._handle < 0:
            if self.parent is None:
                if make:
                    make_folder(self.path)
                self._handle = os.open(self.path, OPENING)
            else:
                self._handle = self._open_inside(self.parent.handle(make), make)
        return self._handle

    def _open_inside(self, parent: int, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                os.mkdir(self.path.name, dir_fd=parent)
                os.fsync(parent)
        return os.open(self.path.name, OPENING | os.O_NOFOLLOW, dir_fd=parent)

    def guard(self) -> None:
        """Called before every change: may this process write here?"""
        if self.parent is not None:
            self.parent.guard()

    # ---- reading

    def names(self) -> list[str]:
        """Of all files and folders here, sorted; empty if the folder does not exist."""
        with self._errors(), suppress(FileNotFoundError):
            return sorted(os.listdir(self.handle()))  # noqa: PTH208 (of a handle)
        return []

    def has(self, name: str) -> bool:
        """Whether there is a file, or anything else, of that name."""
        with self._errors(), suppress(FileNotFoundError):
            os.stat(name, dir_fd=self.handle(), follow_symlinks=False)
            return True
        return False

    def read(self, name: str, most: int) -> bytes:
        """OSError if there is no regular file of at most so many bytes."""
        inner, slash, rest = name.partition("/")
        if slash:
            return self.sub(inner).read(rest, most)
        with self._opened(name, os.O_RDONLY) as handle, os.fdopen(os.dup(handle), "rb") as file:
            if os.fstat(handle).st_size > most:
                raise OSError(errno.EFBIG, f"more than {most:,} bytes")
            return file.read()

    # ---- changing

    def write(self, name: str, content: bytes) -> None:
        """Replace a file atomically. `name` may name a folder inside, as in "snapshots/first.safetensors"."""
        inner, slash, rest = name.partition("/")
        if slash:
            self.sub(inner).write(rest, content)
            return
        part = part_name(name)
        self.write_part(part, name, content)
        try:
            self.rename_part(part, name)
        except BaseException:
            self._drop(part)
            raise

    def write_part(self, part: str, name: str, content: bytes) -> None:
        """The synced content of a file under another name."""
        with self._errors(name):
            self.guard()
            here = self.handle(make=True)
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o666, dir_fd=here)
            try:
                try:
                    write_all(handle, content)
                    os.fsync(handle)
                finally:
                    os.close(handle)
            except BaseException:
                self._drop(part)
                raise

    def rename_part(self, part: str, name: str) -> None:
        """Give it its own name. If that fails, it stays: a manifest may already count on it."""
        with self._errors(name):
            self.guard()
            os.replace(part, name, src_dir_fd=self.handle(), dst_dir_fd=self.handle())
            os.fsync(self.handle())

    def write_together(self, files: dict[str, bytes]) -> None:
        """Replace several files: all are on the disk before the first gets its name, in their order."""
        parts = {part_name(name): name for name in files}
        try:
            for part, name in parts.items():
                self.write_part(part, name, files[name])
            for part, name in parts.items():
                self.rename_part(part, name)
        except BaseException:
            for part in parts:
                self._drop(part)
            raise

    def _drop(self, part: str) -> None:
        with suppress(OSError):
            os.unlink(part, dir_fd=self.handle())

    def append(self, name: str, content: bytes, size: int) -> None:
        """To a file that has `size` bytes; a file of another size was changed by someone else."""
        with self._errors(name):
            self.guard()
            self.handle(make=True)
            how = os.O_WRONLY | os.O_APPEND | (0 if size else os.O_CREAT | os.O_EXCL)
            with self._opened(name, how) as handle:
                if os.fstat(handle).st_size != size:
                    raise UserError(f"{self.path / name} was changed while this run was writing it.")
                write_all(handle, content)
                os.fsync(handle)
            if not size:
                os.fsync(self.handle())

    def cut(self, name: str, size: int) -> None:
        """Keep the first bytes of a file; an empty one is removed."""
        if not size:
            self.remove(name)
            return
        with self._errors(name):
            self.guard()
            with self._opened(name, os.O_WRONLY) as handle:
                os.ftruncate(handle, size)
                os.fsync(handle)

    def remove(self, *names: str) -> None:
        """Files that are there; never folders."""
        with self._errors():
            self.guard()
            for name in names:
                inner, slash, rest = name.partition("/")
                if slash:
                    self.sub(inner).remove(rest)
                    continue
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.handle())

    def remove_parts(self) -> None:
        """What killed processes left half-written."""
        self.remove(*(name for name in self.names() if PART.fullmatch(name)))

    def remove_if_empty(self) -> None:
        """With a folder in which someone keeps files of their own, nothing happens."""
        if self.parent is not None:
            with suppress(OSError):
                os.rmdir(self.path.name, dir_fd=self.parent.handle())
                self.close()

    def sync(self) -> None:
        """What was removed stays removed, even after a power loss."""
        with self._errors():
            os.fsync(self.handle())

    # ---- errors

    @contextmanager
    def _opened(self, name: str, how: int) -> Iterator[int]:
        handle = os.open(name, how | PLAIN, 0o666, dir_fd=self.handle())
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.ENXIO, "not a regular file")
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def _errors(self, name: str = "") -> Iterator[None]:
        path = self.path / name if name else self.path
        try:
            with user_errors(path):
                yield
        except UserError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in IN_THE_WAY:
                raise UserError(
                    f"{path} is a link or a special file, which this run will not write through. Remove it, or choose "
                    "another --out."
                ) from error
            if isinstance(cause, FileNotFoundError):
                raise UserError(f"{path} was removed while this run was writing it.") from error
            raise


def write_all(handle: int, content: bytes) -> None:
    """A write may be short."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def new_id() -> str:
    """Of a run, or of a process that writes one."""
    return secrets.token_hex(8)
