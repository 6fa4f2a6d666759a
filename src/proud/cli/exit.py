"""How a command ends: an exit code and one clear line for errors that the user can fix."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from proud.errors import Stopped, UserError
from proud.printing import write

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EFBIG)
STOPPING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """SIGTERM or SIGHUP outside of training, which stops at a checkpoint."""


STOPS = (Stopped, Terminated, KeyboardInterrupt)


def say_stopped(stop: BaseException, advice: str = "") -> int:
    """One line that says what to do next, if anything; returns the exit code."""
    number = signal.Signals(stop.args[0]) if isinstance(stop, Terminated) else signal.SIGINT
    by = f" by {number.name}" if isinstance(stop, Terminated) else ""
    return say(f"stopped{by}. {advice}".rstrip(), 128 + number)


def exit_code(command: Callable[[], int]) -> int:
    """Call the command, and turn its errors into messages and exit codes."""
    replace_closed_streams()
    before = {number: signal.signal(number, _terminate) for number in STOPPING if _is_default(number)}
    try:
        code = command()
        sys.stdout.flush()
        return code
    except UserError as error:
        return say(str(error), 2)
    except STOPS as stop:
        return say_stopped(stop)
    except (BrokenPipeError, ConnectionError):  # as in `proud train --help | head`
        return closed_output()
    except OSError as error:
        if error.errno == errno.EIO:  # the terminal is gone
            return closed_output()
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        closed_output()
        why = error.strerror or error
        return say(f"the output cannot be written: {why}. Files that were written before are intact.", 2)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        return say("out of GPU memory: lower --batch-size or --size.", 2)
    except MemoryError:
        return say("out of memory: lower --batch-size or --size, or use fewer images.", 2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str, code: int) -> int:
    with suppress(OSError, ValueError):  # the output may be closed
        write(f"proud: {text}", sys.stderr)
    return code


def replace_closed_streams() -> None:
    """As in `proud … >&-`: what would be printed is discarded."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def is_closed(stream: TextIO) -> bool:
    """Whether it replaces a closed one."""
    return getattr(stream, "name", "") == os.devnull


def closed_output() -> int:
    """Discard the rest of the output, so that the interpreter's flush at exit does not fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _is_default(number: signal.Signals) -> bool:
    """Under nohup SIGHUP is ignored, and stays so."""
    return signal.getsignal(number) == signal.SIG_DFL


def _terminate(number: int, frame: object) -> None:
    raise Terminated(number)
