"""Faults, one function each: cause it, check the message, resume, compare with the undisturbed run.

Each returns what the program said. An AssertionError means that the fault was not survived.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

from children import LIMIT, ends, wait_until
from stopping import STOPPING
from undisturbed import PLAIN_EPOCH, Fault, Site, checkpoints_every_epoch, clear_message, hang

# ---- disks


def _small_files(limit: int) -> None:
    checkpoints_every_epoch()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def file_size_limit(site: Site, out: Path) -> str:
    """No file may grow beyond a limit, which the records reach only after some epochs."""
    whole = (site.undisturbed / "model" / "model.safetensors").stat().st_size
    code, said = site.train(out, before=partial(_small_files, whole // 2))
    assert code == 2, said
    site.resumes(out)
    return clear_message(said, "Cannot write", "File too large")


def _fill_disk(after: int) -> None:
    """From the n-th sync on, the disk is full."""
    checkpoints_every_epoch()
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    os.fsync = fsync


def full_disk_late(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_fill_disk, 14))
    assert code == 2, said
    site.resumes(out)
    return clear_message(said, "Cannot write", "No space left")


def unwritable_output(site: Site, out: Path) -> str:
    """A place where even root may not write."""
    code, said = site.train(Path("/proc/proud-run"))
    assert code == 2, said
    return clear_message(said, "Cannot write to")


def claim_to_be_rank_1() -> None:
    """Only the first rank of a run writes, so that the others need no lock."""
    os.environ["RANK"] = "1"


def two_processes(site: Site, out: Path) -> str:
    there = out.with_name("hangs")
    process, _ = site.begin(out, before=partial(hang, PLAIN_EPOCH, there))
    wait_until(there.exists, process)
    for before in (None, claim_to_be_rank_1):
        code, said = site.train(out, "--resume", before=before)
        assert code == 2, said
        message = clear_message(said, "Another process is writing")
    process.kill()
    ends(process)
    site.resumes(out)
    return message


# ---- data


def _vanish(data: Path) -> None:
    """Between finding the images and reading them."""
    from proud.data import reader

    real = reader.hash_all

    def hash_all(*arguments: Any, **more: Any) -> list[str]:
        if data.exists():
            data.rename(data.with_name("elsewhere"))
        return real(*arguments, **more)

    reader.hash_all = hash_all


def data_gone_before_decoding(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_vanish, site.data))
    site.data.with_name("elsewhere").rename(site.data)
    assert code == 2, said
    assert site.train(out, "--quiet")[0] == 0
    site.must_be_the_same(out)
    clear_message(said, "images cannot be used")
    return clear_message(said, "No such file or directory")


def data_gone_while_training(site: Site, out: Path) -> str:
    there = out.with_name("hangs")
    process, _ = site.begin(out, "--quiet", before=partial(hang, PLAIN_EPOCH, there, 3))
    wait_until(there.exists, process)
    site.data.rename(site.data.with_name("elsewhere"))
    process.terminate()
    ends(process)
    code, said = site.train(out, "--resume")
    site.data.with_name("elsewhere").rename(site.data)
    assert code == 2, said
    site.resumes(out)
    return clear_message(said, "There is no folder")


def image_fails_at_decoding(site: Site, out: Path) -> str:
    """Its header is intact."""
    path = min(site.data.rglob("*.png"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 200])
    code, said = site.train(out)
    path.write_bytes(content)
    assert code == 2, said
    assert site.train(out, "--quiet")[0] == 0
    site.must_be_the_same(out)
    return clear_message(said, path.name, "truncated")


# ---- the image cache


def _small_pieces(cache: Path | None = None) -> None:
    """Pieces of four images. With `cache`, decoding hangs once the first piece of images is there."""
    from proud.data import cache_build

    cache_build.ROWS_PER_PIECE = 4
    if cache is None:
        return
    real = cache_build.decode

    def decode(*arguments: Any) -> Any:
        if any(b"images" in path.read_bytes() for path in cache.glob("*/steps.jsonl")):
            (cache / "hangs").touch()
            time.sleep(LIMIT)
        return real(*arguments)

    cache_build.decode = decode


def killed_while_caching(site: Site, out: Path) -> str:
    """The build continues after the last complete piece, and training is the same as without a cache."""
    cache = out.with_name(f"{out.name}-cache")
    process, _ = site.begin(out, "--cache", str(cache), "--quiet", before=partial(_small_pieces, cache))
    wait_until((cache / "hangs").exists, process)
    process.kill()
    ends(process)
    (cache / "hangs").unlink()
    (unfinished,) = (path for path in cache.iterdir() if not (path / "done.json").exists())
    kept = (unfinished / "steps.jsonl").read_bytes()
    code, said = site.train(out, "--cache", str(cache), "--quiet", before=_small_pieces)
    assert code == 0, said
    assert (unfinished / "steps.jsonl").read_bytes().startswith(kept.rpartition(b"\n")[0]), "started anew"
    site.must_be_the_same(out)
    return "the build continues after its last complete piece"


def cache_cannot_be_written(site: Site, out: Path) -> str:
    code, said = site.train(out, "--cache", "/proc/proud-cache")
    assert code == 2, said
    code, again = site.train(out, "--cache", "none", "--quiet")
    assert code == 0, again
    site.must_be_the_same(out)
    return clear_message(said, "The image cache in", "cannot be written")


# ---- memory and numbers


def _small_gpu(most: int) -> None:
    import torch

    from proud.methods.base import Method

    real = Method.step

    def step(self: Any, stage: Any, rows: Any, draws: Any, losses: Any) -> Any:
        if stage.name == "main" and self.config.batch_size > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return real(self, stage, rows, draws, losses)

    Method.step = step  # type: ignore[method-assign]


def out_of_memory(site: Site, out: Path) -> str:
    code, said = site.train(out, before=partial(_small_gpu, 3))
    assert code == 2, said
    site.resumes(out)
    return clear_message(said, "too small for --batch-size 8; 2 would fit")


def not_a_number(site: Site, out: Path) -> str:
    code, said = site.train(out, "--lr", "1e30", before=checkpoints_every_epoch)
    assert code == 2, said
    return clear_message(said, "--lr", "became")


FAULTS: dict[str, Fault] = {
    "a file grows over the allowed size (RLIMIT_FSIZE)": file_size_limit,
    "the disk is full in the middle of a run": full_disk_late,
    "the output cannot be written to": unwritable_output,
    "a second process on the same run": two_processes,
    "the data folder disappears before decoding": data_gone_before_decoding,
    "the data folder disappears while training": data_gone_while_training,
    "an image that fails only at decoding": image_fails_at_decoding,
    "killed while the image cache is built": killed_while_caching,
    "the image cache cannot be written": cache_cannot_be_written,
    "out of GPU memory (simulated)": out_of_memory,
    "a loss that is not a number": not_a_number,
    **STOPPING,
}
