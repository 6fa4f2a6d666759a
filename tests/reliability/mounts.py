"""Faults that need a file system of their own, and so root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from children import ends, read, wait_until
from undisturbed import PLAIN_EPOCH, Fault, Site, checkpoints_every_epoch, clear_message, hang


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system in memory of this size."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def can_mount(place: Path) -> bool:
    try:
        with small_disk(place, "1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def full_disk(site: Site, out: Path) -> str:
    """Room for the first checkpoint, but not for two and another one; then the disk grows and the run continues."""
    one = (site.undisturbed / "model" / "model.safetensors").stat().st_size
    with small_disk(out, f"{5 * one}") as disk:
        code, said = site.train(disk / "run", before=checkpoints_every_epoch)
        assert code == 2, said
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        site.resumes(disk / "run")
    return clear_message(said, "Cannot write", "No space left")


def becomes_read_only(site: Site, out: Path) -> str:
    """As a file system does after an error of the disk below it."""
    with small_disk(out, "100m") as disk:
        there = out.with_name("hangs")
        process, log = site.begin(disk / "run", before=partial(hang, PLAIN_EPOCH, there, 3, seconds=2.0))
        wait_until(there.exists, process)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert ends(process) == 2, read(log)
        said = read(log)
        code, again = site.train(disk / "run", "--resume")
        assert code == 2, again
        clear_message(again, "Cannot write to", "Read-only")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        site.resumes(disk / "run")
    return clear_message(said, "Cannot write", "Read-only")


MOUNTED: dict[str, Fault] = {
    "the disk is full (a small tmpfs)": full_disk,
    "the output becomes read-only in the middle of a run (remount)": becomes_read_only,
}
