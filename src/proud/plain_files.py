"""Opening files that may be anything: pipes and devices must not make us wait, nor absurd sizes fill the memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path, most: int) -> BinaryIO:
    """A plain file of at most so many bytes, opened for reading. OSError says why not."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a NUL byte
        raise OSError(str(error)) from error
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        raise OSError("not a plain file")
    if about.st_size > most:
        os.close(handle)
        raise OSError(f"{about.st_size:,} bytes are too many, at most {most:,}")
    return os.fdopen(handle, "rb")
