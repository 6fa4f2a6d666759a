"""How a command ends: an exit code and one clear line for errors that the user can fix."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from proud.errors import Stopped, UserError
from proud.text import printable

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
        if error.errno != errno.EIO:  # the terminal is gone
            raise
        return closed_output()
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
        print(f"proud: {printable(text)}", file=sys.stderr)
    return code


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
