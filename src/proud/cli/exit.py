"""How a command ends: an exit code and one clear line for what the user can mend, a traceback for what only we can."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from proud.errors import UserError

STOPPING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """SIGTERM or SIGHUP, wherever the program is; training itself stops more gently."""


def ending_well(command: Callable[[], int]) -> int:
    """Call the command; returns the exit code."""
    before = {number: signal.signal(number, _terminate) for number in STOPPING if _is_ours(number)}
    try:
        code = command()
        sys.stdout.flush()
        return code
    except UserError as error:
        return say(str(error), 2)
    except KeyboardInterrupt:
        return say("interrupted", 130)
    except Terminated as error:
        number = signal.Signals(error.args[0])
        return say(f"stopped by {number.name}. The same command starts it again.", 128 + number)
    except (BrokenPipeError, ConnectionError):  # as in `proud train --help | head`
        return nobody_reads()
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal is gone
            raise
        return nobody_reads()
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":
            raise
        return say("the GPU's memory is too small for this: lower --batch-size or --size.", 2)
    except MemoryError:
        return say("the memory is too small for this: lower --batch-size or --size, or use fewer images.", 2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str, code: int) -> int:
    with suppress(OSError, ValueError):  # nobody may be there to read it
        print(f"proud: {shown(text)}", file=sys.stderr)
    return code


def nobody_reads() -> int:
    """What is still to be written goes nowhere, and the interpreter's own flush at the end does not fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def shown(text: str) -> str:
    """Names of files may hold anything: what would command the terminal, or is no text, is spelt out."""
    plain = "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)
    return plain.encode("utf-8", "backslashreplace").decode()


def _is_ours(number: signal.Signals) -> bool:
    """Under nohup a hang-up is ignored, and stays so."""
    return signal.getsignal(number) == signal.SIG_DFL


def _terminate(number: int, frame: object) -> None:
    raise Terminated(number)
