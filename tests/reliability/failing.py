"""Each change of a small run to its files fails once: a full disk, an input/output error, a short write."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from crashing import SmallRun, checkpoints_every_epoch
from killing import fingerprint

from proud.errors import UserError

CHANGES = ("write", "fsync", "replace", "mkdir", "unlink", "rmdir", "open")
KINDS = {"full disk": errno.ENOSPC, "input/output error": errno.EIO, "short write": 0}


class Failing:
    """The n-th change to files fails; the others do not."""

    def __init__(self, at: int, kind: str) -> None:
        self.at, self.kind, self.count = at, kind, 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        real = {name: getattr(os, name) for name in CHANGES}
        for name in CHANGES:
            setattr(os, name, self._failing(name, real[name]))
        try:
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _failing(self, name: str, real: Any) -> Any:
        def change(*arguments: Any, **more: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **more)
            self.count += 1
            if self.count != self.at:
                return real(*arguments, **more)
            if self.kind == "short write":
                if name != "write":
                    return real(*arguments, **more)
                return real(arguments[0], arguments[1][: max(1, len(arguments[1]) // 3)])
            raise OSError(KINDS[self.kind], os.strerror(KINDS[self.kind]))

        return change


def count_changes(run: SmallRun) -> int:
    failing = Failing(0, "full disk")
    with checkpoints_every_epoch(), failing.installed():
        run.go_on(run.place / "counted")
    return failing.count


def fail_once(run: SmallRun, cases: Iterable[tuple[int, str]]) -> dict[str, int]:
    """AssertionError unless each failure is one clear error, after which the run goes on to the same end."""
    found = {"cases": 0, "errors": 0, "survived": 0}
    for at, kind in cases:
        folder = run.place / f"failing-{at}"
        with checkpoints_every_epoch():
            try:
                with Failing(at, kind).installed():
                    run.go_on(folder)
                found["survived"] += 1
            except UserError as error:
                found["errors"] += 1
                assert "\n" not in str(error) and kind != "short write", f"change {at}, {kind}: {error}"
            except Exception as error:
                raise AssertionError(f"change {at}, {kind}: {type(error).__name__}: {error}") from error
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)  # nothing is damaged
                    run.go_on(folder)
            except (UserError, UserWarning) as error:
                raise AssertionError(f"not resumable after {kind} at change {at}: {error}") from error
        assert fingerprint(folder) == run.whole, f"change {at}, {kind}: another end"
        shutil.rmtree(folder)
        found["cases"] += 1
    return found
