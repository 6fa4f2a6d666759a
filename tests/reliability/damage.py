"""Files of a run that are damaged between two of its lives, as by a failing disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from children import ends, wait_until
from undisturbed import Fault, Site, checkpoints_every_epoch, clear_message


def half_done(site: Site, out: Path) -> list[Path]:
    """A run that was killed after some epochs. Its checkpoints' tensors, newest first."""
    process, _ = site.begin(out, "--quiet", before=checkpoints_every_epoch)
    wait_until(lambda: len(list((out / "checkpoints").glob("*.json"))) == 2, process)
    process.kill()
    ends(process)
    (out / "checkpoints" / ".checkpoint-000009.safetensors.0a1b2c3d.part").write_bytes(b"left by a kill")
    found = sorted((out / "checkpoints").glob("*.json"), reverse=True)
    return [path.with_suffix(".safetensors") for path in found]


def damaged_newest(harm: Callable[[Path], object], site: Site, out: Path) -> str:
    newest = half_done(site, out)[0]
    harm(newest)
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 0, said
    site.goes_on(out)
    return clear_message(said, "is damaged", "trying the one before")


def both_damaged(site: Site, out: Path) -> str:
    for path in half_done(site, out):
        path.write_bytes(b"")
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 2, said
    code, _ = site.train(out, "--overwrite", "--quiet")
    assert code == 0
    site.goes_on(out)
    return clear_message(said, "no intact checkpoint")


def empty_result(site: Site, out: Path) -> str:
    """As after a power failure on a file system without order: the result is made again from the last checkpoint."""
    assert site.train(out, "--quiet")[0] == 0
    (out / "result.json").write_bytes(b"")
    site.goes_on(out)
    return "made again"


def damaged_description(site: Site, out: Path) -> str:
    half_done(site, out)
    (out / "run.json").write_bytes(b"")
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 2, said
    assert site.train(out, "--overwrite", "--quiet")[0] == 0
    site.goes_on(out)
    return clear_message(said, "run.json cannot be read")


def lost_records(site: Site, out: Path) -> str:
    half_done(site, out)
    lines = (out / "records.jsonl").read_bytes()
    (out / "records.jsonl").unlink()
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 2, said
    (out / "records.jsonl").write_bytes(lines)
    site.goes_on(out)
    return clear_message(said, "records: restore it")


def edited_checkpoint(site: Site, out: Path) -> str:
    """Its checksums are right, its position is not."""
    for path in half_done(site, out):
        about = json.loads(path.with_suffix(".json").read_text())
        about["position"] |= {"epoch": 10**30, "records": 10**30}
        path.with_suffix(".json").write_text(json.dumps(about))
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 2, said
    assert site.train(out, "--overwrite", "--quiet")[0] == 0
    return clear_message(said, "where this run never is")


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(bytes(content))


def _empty_json(path: Path) -> None:
    path.with_suffix(".json").write_bytes(b"")


DAMAGE: dict[str, Fault] = {
    "newest checkpoint empty": partial(damaged_newest, lambda path: path.write_bytes(b"")),
    "newest checkpoint cut in half": partial(damaged_newest, _halve),
    "one bit of the newest checkpoint wrong": partial(damaged_newest, _flip),
    "newest checkpoint gone, its description there": partial(damaged_newest, Path.unlink),
    "newest checkpoint's description empty": partial(damaged_newest, _empty_json),
    "both checkpoints damaged": both_damaged,
    "result.json empty": empty_result,
    "run.json empty": damaged_description,
    "records.jsonl gone": lost_records,
    "a checkpoint edited by hand": edited_checkpoint,
}
