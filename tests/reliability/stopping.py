"""Signals at every moment, terminals and readers that go away, clocks that jump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from children import ends, wait_until
from killing import fingerprint
from undisturbed import FLAGS, Fault, Site, clear_message, read, slow

MOMENTS: dict[str, tuple[str, str, float, str]] = {
    # which function is slow, and for how many seconds; what is there when the run has come so far
    "reading images": ("proud.data.reader", "hash_all", 20.0, ""),
    "decoding images": ("proud.data.decode", "_decode_pixels", 1.0, ""),
    "the first epoch": ("proud.methods.base", "Method.step", 20.0, "run.json"),
    "pseudo-labelling": ("proud.methods.proud", "ProUD.pseudo_label", 20.0, "records.jsonl"),
    "evaluation": ("proud.training.evaluator", "Evaluator.scores", 20.0, "run.json"),
    "writing a checkpoint": ("proud.training.checkpoint", "write_tensors", 20.0, "records.jsonl"),
}


def stopped(number: signal.Signals, moment: str, site: Site, out: Path) -> str:
    """Within five seconds, whatever it is doing; the last boundary is kept."""
    module, name, seconds, there = MOMENTS[moment]
    process, log = site.begin(out, "--quiet", before=partial(slow, module, name, seconds))
    wait_until((out / there).exists, process)
    time.sleep(0.3)
    begun = time.monotonic()
    os.kill(process.pid, number)
    code = ends(process)
    took = time.monotonic() - begun
    said = read(log)
    assert took < 5, f"{took:.1f} s"
    assert code in (130, 128 + number), f"{code}: {said}"
    if (out / "run.json").exists():
        site.goes_on(out)
    else:
        assert site.train(out, "--quiet")[0] == 0
        assert fingerprint(out) == site.whole
    return f"{clear_message(said, 'topped')} ({took:.1f} s)"


def hang_up_under_nohup(site: Site, out: Path) -> str:
    process, log = site.begin(out, "--quiet", before=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN))
    wait_until((out / "run.json").exists, process)
    os.kill(process.pid, signal.SIGHUP)
    assert ends(process) == 0, read(log)
    assert fingerprint(out) == site.whole
    return "the run goes on to its end"


def nobody_reads(site: Site, out: Path) -> str:
    """`proud train … | head -c 1`: the reader is gone when there is something to say."""
    argv = [sys.executable, "-m", "proud", "train", "--data", str(site.data), "--out", str(out), *FLAGS]
    reader, writer = os.pipe()
    process = subprocess.Popen(argv, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said, said
    site.goes_on(out)
    return f"exit code {process.returncode}, the run is whole"


def listen() -> None:
    """Whoever runs the tests may do so under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def terminal_gone(site: Site, out: Path) -> str:
    """Its window is closed: every write to the terminal fails from then on."""
    import pty

    argv = [sys.executable, "-m", "proud", "train", "--data", str(site.data), "--out", str(out), *FLAGS]
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=listen)
    os.close(slave)
    while not (out / "run.json").exists() and process.poll() is None:
        time.sleep(0.01)
    os.close(master)
    os.kill(process.pid, signal.SIGHUP)
    code = process.wait(timeout=60)
    site.goes_on(out)
    return f"exit code {code}, the run goes on with --resume"


# ---- clocks


def _jumping_clocks(seconds: float) -> None:
    from proud.training import loop

    class Clock:
        """Every look at it is so much later than the last; or earlier, where that is negative."""

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
    assert fingerprint(out) == site.whole
    return "the run ends as it should, with all its checkpoints"


STOPPING: dict[str, Fault] = {
    "SIGHUP under nohup": hang_up_under_nohup,
    "stdout is closed": nobody_reads,
    "the terminal is gone": terminal_gone,
    "clocks jump back, an hour at every look": partial(clocks_jump, -3600.0),
    "clocks jump ahead, a day at every look": partial(clocks_jump, 86400.0),
    **{f"SIGTERM during {moment}": partial(stopped, signal.SIGTERM, moment) for moment in MOMENTS},
    "SIGHUP during the first epoch": partial(stopped, signal.SIGHUP, "the first epoch"),
    "SIGINT during pseudo-labelling": partial(stopped, signal.SIGINT, "pseudo-labelling"),
}
