"""Who works on a job: a lock file that is held, not merely present.

The kernel releases a `flock` when its process ends, however it ends, so a dead worker's job is free at once: no
heartbeats and no stale claims. The files stay (removing one could split a lock in two) and name their holder. On NFS
the lock works between machines if the server provides locks; without locks the claim is refused.
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
from proud.files import open_own, user_errors
from proud.stored import ClaimRecord
from proud.typed import read_record

MOST_CLAIM_BYTES = 10_000


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Yields whether the claim was obtained; it is held for the time of the block."""
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
        with suppress(OSError):  # for people only: a full disk must not matter
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(about).encode(), 0)
        try:
            yield True
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def use(path: Path) -> int:
    """A handle that prevents claims until it is closed; any number of processes may have one."""
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
        about = read_record(path, ClaimRecord, MOST_CLAIM_BYTES)
        return f"process {about['pid']} on {about['host']}"
    except (OSError, ValueError):
        return "another worker"


def _open(path: Path) -> int:
    with user_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_own(path)


def _lock(handle: int, path: Path, how: int) -> bool:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"{path.parent} is on a file system without locks ({error.strerror}), so two workers could run one job. "
            "Choose an --out on another file system."
        ) from error
    return True
