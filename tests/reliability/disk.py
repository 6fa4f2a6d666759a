"""What is on the disk after a kill or a power loss at any moment of a process, from a journal of all it did to files.

After a kill, everything that was done is there. After a power loss, what was not synced may be missing, each operation
for itself: bytes of a file until the file is synced; new names, renames and removals until their folder is synced.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PART = ".proud-part"


@dataclass
class Inode:
    """A file or a folder as it would be, and the operations that a power loss may undo."""

    is_folder: bool = False
    content: bytearray = field(default_factory=bytearray)
    names: dict[str, int] = field(default_factory=dict)
    pending: list[Callable[[Inode], None]] = field(default_factory=list)
    """since it was synced; what was before is in `content` and `names`"""

    def settled(self, keeps: Callable[[], bool]) -> Inode:
        """A copy in which each pending operation was done or not."""
        copy = Inode(self.is_folder, bytearray(self.content), dict(self.names))
        for operation in self.pending:
            if keeps():
                operation(copy)
        return copy

    def sync(self) -> None:
        for operation in self.pending:
            operation(self)
        self.pending.clear()


class Disk:
    """All inodes below a folder, which are changed by one event after another."""

    def __init__(self) -> None:
        self.inodes: dict[int, Inode] = {0: Inode(is_folder=True)}

    def apply(self, event: Event) -> None:
        what, inode, *rest = event
        if what == "sync":
            self.inodes[inode].sync()
        elif what == "create":
            name, new, is_folder = rest
            self.inodes[new] = Inode(is_folder)
            self.inodes[inode].pending.append(lambda folder: folder.names.update({name: new}))
        elif what == "write":
            place, data = rest
            self.inodes[inode].pending.append(lambda file: _put(file.content, place, data))
        elif what == "cut":
            (size,) = rest
            self.inodes[inode].pending.append(lambda file: file.content.__delitem__(slice(size, None)))
        elif what == "remove":
            (name,) = rest
            self.inodes[inode].pending.append(lambda folder: folder.names.pop(name, None))
        elif what == "rename":
            old, name, moved = rest
            self.inodes[inode].pending.append(lambda folder: _rename(folder.names, old, name, moved))

    def after_kill(self) -> dict[str, bytes]:
        """Path → content; folders have a path that ends in a slash."""
        return self._tree(lambda: True)

    def after_power_loss(self, chance: random.Random) -> dict[str, bytes]:
        share = chance.choice([0.0, 0.5, 0.9])  # nothing, half, or nearly all of what was not synced is there
        return self._tree(lambda: chance.random() < share)

    def _tree(self, keeps: Callable[[], bool], inode: int = 0, path: str = "") -> dict[str, bytes]:
        found, here = {}, self.inodes[inode].settled(keeps)
        if not here.is_folder:
            return {path: bytes(here.content)}
        for name, inside in here.names.items():
            is_folder = self.inodes[inside].is_folder
            inner = f"{path}{name}/" if is_folder else f"{path}{name}"
            found |= ({inner: b""} if is_folder else {}) | self._tree(keeps, inside, inner)
        return found


Event = tuple[Any, ...]


def _put(content: bytearray, place: int, data: bytes) -> None:
    content.extend(bytes(max(0, place - len(content))))  # a hole, if what comes before was lost
    content[place : place + len(data)] = data


def _rename(names: dict[str, int], old: str, name: str, moved: int) -> None:
    names.pop(old, None)
    names[name] = moved


class Journal:
    """Records what this process does to files below a folder, through the functions of `os`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[Event] = []
        self._handles: dict[int, int] = {}  # open files and folders → inode
        self._numbers: dict[tuple[int, int], int] = {}  # device and inode → our number
        self._count = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        real = {name: getattr(os, name) for name in ("open", "close", "write", "fsync", "ftruncate", "mkdir")}
        real |= {name: getattr(os, name) for name in ("unlink", "rmdir", "replace")}
        self._real = real
        self._number(self.root.stat())
        try:
            for name in real:
                setattr(os, name, getattr(self, f"_{name}"))
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _number(self, about: os.stat_result, new: bool = False) -> int:
        """`new`: file systems give the number of a removed file to the next one."""
        key = about.st_dev, about.st_ino
        if new or key not in self._numbers:
            self._numbers[key] = self._count
            self._count += 1
        return self._numbers[key]

    def _folder_of(self, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
        """The folder's number and the name in it; None for places elsewhere."""
        if dir_fd is not None:
            return (self._handles[dir_fd], str(path)) if dir_fd in self._handles else None
        place = Path(path).absolute()
        if self.root not in place.parents:
            return None
        return self._number(place.parent.stat()), place.name

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._folder_of(path, dir_fd)
        try:
            os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            new = False
        except OSError:
            new = True
        handle = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if where is not None or (dir_fd is None and Path(path).absolute() == self.root):
            number = self._number(os.fstat(handle), new)
            self._handles[handle] = number
            if new and where is not None:
                self.events.append(("create", *where, number, False))
        return handle

    def _close(self, handle: int) -> None:
        self._handles.pop(handle, None)
        self._real["close"](handle)

    def _write(self, handle: int, data: Any) -> int:
        if handle in self._handles:
            place, content, number = os.fstat(handle).st_size, bytes(data), self._handles[handle]
            half = len(content) // 2
            self.events.append(("write", number, place, content[:half]))
            self.events.append(("write", number, place + half, content[half:]))
        return self._real["write"](handle, data)

    def _fsync(self, handle: int) -> None:
        if handle in self._handles:
            self.events.append(("sync", self._handles[handle]))

    def _ftruncate(self, handle: int, size: int) -> None:
        self._real["ftruncate"](handle, size)
        if handle in self._handles:
            self.events.append(("cut", self._handles[handle], size))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if (where := self._folder_of(path, dir_fd)) is not None:
            self.events.append(("create", *where, self._number(os.stat(path, dir_fd=dir_fd), new=True), True))

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._real["unlink"](path, dir_fd=dir_fd)
        if (where := self._folder_of(path, dir_fd)) is not None:
            self.events.append(("remove", *where))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._real["rmdir"](path, dir_fd=dir_fd)
        if (where := self._folder_of(path, dir_fd)) is not None:
            self.events.append(("remove", *where))

    def _replace(self, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        moved = self._number(os.stat(old, dir_fd=src_dir_fd))
        self._real["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        source, target = self._folder_of(old, src_dir_fd), self._folder_of(new, dst_dir_fd)
        if source is not None and target is not None:
            self.events.append(("rename", source[0], source[1], target[1], moved))


def without(events: list[Event], place: int) -> list[Event]:
    """The same, as if one event had not happened."""
    return events[:place] + events[place + 1 :]


def syncs(events: list[Event]) -> list[int]:
    return [place for place, event in enumerate(events) if event[0] == "sync"]


def crashes(events: list[Event], seeds: range = range(0)) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """After every event: what a kill leaves, and what a power loss does, once per seed."""
    disk = Disk()
    for place, event in enumerate(events):
        disk.apply(event)
        yield place, "kill", disk.after_kill()
        for seed in seeds:
            yield place, f"power loss {seed}", disk.after_power_loss(random.Random(place * 1000 + seed))


def distinct(states: Iterator[tuple[int, str, dict[str, bytes]]]) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """One of those that differ only in half-written files, which have names of their own and are removed unread."""
    seen = set()
    for place, what, tree in states:
        digest = hashlib.sha256()
        for path, content in sorted(tree.items()):
            if not path.endswith(PART):
                digest.update(path.encode() + b"\0" + hashlib.sha256(content).digest())
        if digest.digest() not in seen:
            seen.add(digest.digest())
            yield place, what, tree


def restore(tree: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True)
    for path, content in tree.items():
        if path.endswith("/"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix() + ("/" if path.is_dir() else ""): b""
        if path.is_dir()
        else path.read_bytes()
        for path in folder.rglob("*")
    }
