"""Signals at every moment, terminals and readers that disappear, clocks that jump."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from children import command, ends, read, start, wait_until
from undisturbed import PLAIN_EPOCH, Fault, Site, clear_message, hang

MOMENTS: dict[str, tuple[str, str]] = {  # the function that hangs
    "reading images": ("proud.data.reader", "hash_all"),
    "decoding images": ("proud.data.decode", "_decode_pixels"),
    "the first epoch": ("proud.methods.base", "Method.step"),
    "pseudo-labelling": ("proud.methods.proud", "ProUD.pseudo_label"),
    "evaluation": ("proud.training.evaluator", "Evaluator.scores"),
    "writing a checkpoint": ("proud.training.checkpoint", "tensor_bytes"),
    "the last pass over all images": ("proud.training.run", "final_description"),
    "writing the model": ("proud.training.run", "model_files"),
    "writing the manifest": ("proud.training.run", "commit"),
    "removing the checkpoints": ("proud.training.run", "remove_checkpoints"),
    "showing the result": ("proud.cli.train", "show_result"),
}
AGAIN = "The same command starts it again."
ADVICE = {"reading images": AGAIN, "decoding images": AGAIN}
ADVICE |= dict.fromkeys(("removing the checkpoints", "showing the result"), "is complete.")
RESUME = "Continue with the same command and --resume: the run is in"
SECONDS = {"decoding images": 1.0}  # of each image: it is decoded to its end


def stopped(number: signal.Signals, moment: str, site: Site, out: Path) -> str:
    """The run ends although what it is doing does not, its last epoch is kept, and the advice is right."""
    there = out.with_name(f"{out.name}-hangs")
    limit = {"seconds": SECONDS[moment]} if moment in SECONDS else {}
    process, log = site.begin(out, "--quiet", before=partial(hang, MOMENTS[moment], there, **limit))
    wait_until(there.exists, process)
    begun = time.monotonic()
    os.kill(process.pid, number)
    code = ends(process)
    took = time.monotonic() - begun
    said = read(log)
    assert code in (130, 128 + number), f"{code}: {said}"
    advice = ADVICE.get(moment, RESUME)
    if advice == AGAIN:
        assert site.train(out, "--quiet")[0] == 0
        site.must_be_the_same(out)
    else:
        site.resumes(out)
    return f"{clear_message(said, 'stopped', advice)} ({took:.1f} s)"


def stopped_while_replacing(moment: str, advice: str, site: Site, out: Path) -> str:
    """With --overwrite the earlier run is whole until the new one starts; then --overwrite would cost the new one."""
    shutil.copytree(site.undisturbed, out)
    there = out.with_name(f"{out.name}-hangs")
    limit = {"seconds": SECONDS[moment]} if moment in SECONDS else {}
    process, log = site.begin(out, "--quiet", "--overwrite", before=partial(hang, MOMENTS[moment], there, **limit))
    wait_until(there.exists, process)
    os.kill(process.pid, signal.SIGTERM)
    ends(process)
    if advice == AGAIN:
        site.must_be_the_same(out)
    else:
        site.resumes(out)
    return clear_message(read(log), "stopped", advice)


def _hang_up_in_the_first_epoch() -> None:
    from proud.training import loop

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    real = loop.plain_epoch

    def epoch(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGHUP)
        return real(*arguments)

    loop.plain_epoch = epoch


def hang_up_under_nohup(site: Site, out: Path) -> str:
    code, said = site.train(out, "--quiet", before=_hang_up_in_the_first_epoch)
    assert code == 0, said
    site.must_be_the_same(out)
    return "the run continues to its end"


def _into_a_closed_pipe(log: Path, argv: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command(log, argv, before=partial(os.dup2, writer, 1))
    finally:
        sys.stdout.flush()  # as the interpreter does at its end


def nobody_reads(site: Site, out: Path) -> str:
    """`proud train … | head -c 1`: the reader is gone when there is something to say."""
    log = site.place / f"log-of-{out.parent.name}"
    code = ends(start(_into_a_closed_pipe, log, site.argv(out)))
    assert "Traceback" not in read(log), read(log)
    assert code, "nobody has seen its result"
    site.resumes(out)
    return f"exit code {code}, the run is complete"


def _in_a_terminal(terminal: str, argv: list[str], before: Callable[[], Any]) -> None:
    os.setsid()
    command(Path(terminal), argv, before)


def terminal_gone(site: Site, out: Path) -> str:
    """Its window is closed: every write to the terminal fails from then on."""
    there = out.with_name(f"{out.name}-hangs")
    master, slave = pty.openpty()
    before = partial(hang, PLAIN_EPOCH, there, 2, seconds=1.0)
    process = start(_in_a_terminal, os.ttyname(slave), site.argv(out), before)
    wait_until(there.exists, process)
    os.close(slave)
    os.close(master)
    os.kill(process.pid, signal.SIGHUP)
    code = ends(process)
    site.resumes(out)
    return f"exit code {code}, the run continues with --resume"


# ---- clocks


def _jumping_clocks(seconds: float) -> None:
    from proud.training import loop

    class Clock:
        """Every look is so much later than the one before; or earlier, if that is negative."""

        now = 1e9

        def look(self) -> float:
            self.now += seconds
            return self.now

        monotonic = time = perf_counter = look

        def sleep(self, seconds: float) -> None: ...

    loop.time = Clock()  # type: ignore[assignment]


def clocks_jump(seconds: float, site: Site, out: Path) -> str:
    code, said = site.train(out, "--quiet", before=partial(_jumping_clocks, seconds))
    assert code == 0, said
    site.must_be_the_same(out)
    return "the run ends as it should, with all its checkpoints"


STOPPING: dict[str, Fault] = {
    "SIGHUP under nohup": hang_up_under_nohup,
    "stdout is closed": nobody_reads,
    "the terminal is gone": terminal_gone,
    "clocks jump back, an hour at every look": partial(clocks_jump, -3600.0),
    "clocks jump ahead, a day at every look": partial(clocks_jump, 86400.0),
    **{f"SIGTERM during {moment}": partial(stopped, signal.SIGTERM, moment) for moment in MOMENTS},
    "SIGHUP during the first epoch": partial(stopped, signal.SIGHUP, "the first epoch"),
    **{f"SIGINT during {moment}": partial(stopped, signal.SIGINT, moment) for moment in MOMENTS},
    "SIGTERM before --overwrite has replaced anything": partial(stopped_while_replacing, "decoding images", AGAIN),
    "SIGTERM after --overwrite has replaced a run": partial(
        stopped_while_replacing, "the first epoch", "with --resume instead of --overwrite"
    ),
}
