"""Faults that need a file system of their own, and so root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from children import ends, wait_until
from undisturbed import Fault, Site, checkpoints_every_epoch, clear_message, read


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
    """Room for the first checkpoint, none for two and one more; then the disk grows and the run goes on."""
    one = (site.place / "undisturbed" / "model.safetensors").stat().st_size
    with small_disk(out, f"{5 * one}") as disk:
        code, said = site.train(disk / "run", before=checkpoints_every_epoch)
        assert code == 2, said
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        site.goes_on(disk / "run")
    return clear_message(said, "Cannot write", "No space left")


def becomes_read_only(site: Site, out: Path) -> str:
    """As a file system does after an error of the disk below it."""
    with small_disk(out, "100m") as disk:
        process, log = site.begin(disk / "run", before=checkpoints_every_epoch)
        wait_until((disk / "run" / "records.jsonl").exists, process)
        for _ in range(100):  # refused while a file is open for writing
            if not subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True).returncode:
                break
        assert ends(process) == 2, read(log)
        said = read(log)
        code, again = site.train(disk / "run", "--resume")
        assert code == 2, again
        clear_message(again, "Cannot write to", "Read-only")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        site.goes_on(disk / "run")
    return clear_message(said, "Cannot write", "Read-only")


MOUNTED: dict[str, Fault] = {
    "the disk is full (a small tmpfs)": full_disk,
    "the output becomes read-only in the middle of a run (remount)": becomes_read_only,
}
