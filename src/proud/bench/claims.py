"""Who works on a job: a lock file that is held, not merely present.

The kernel releases a `flock` when its process ends, however it ends, so a dead worker's job is free at once: there is
no heartbeat to miss and no stale claim to judge. The files stay (removing one could split a lock in two) and say who
holds them. On NFS the lock works between machines as far as the server provides locks; where there are none, the claim
is refused rather than pretended.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from proud.errors import UserError
from proud.files import telling_why


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Yields whether the job is ours for the time of the block."""
    handle = _open(path)
    try:
        if not _lock(handle, path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield False
            return
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with suppress(OSError):  # who holds it is said for people; a full disk must not matter
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        try:
            yield True
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def use(path: Path) -> int:
    """A handle with which nobody can claim the file until it is closed; any number of users may have one."""
    handle = _open(path)
    try:
        _lock(handle, path, fcntl.LOCK_SH)
    except BaseException:
        os.close(handle)
        raise
    return handle


def owner(path: Path) -> str:
    """Who holds a claim, in words."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return f"process {about['pid']} on {about['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another worker"


def _open(path: Path) -> int:
    with telling_why(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _lock(handle: int, path: Path, how: int) -> bool:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"{path.parent} lies on a file system without locks ({error.strerror}), which keep two workers from one "
            "job. Choose an --out on another one."
        ) from error
    return True
