"""Files of a run that are damaged before it is resumed, as by a failing disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from undisturbed import Fault, Site, clear_message

from toy import edit_json


def damaged_newest(damage: Callable[[Path], object], site: Site, out: Path) -> str:
    newest = site.copy_half_done(out)[0]
    damage(newest)
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 0, said
    site.must_be_the_same(out)
    return clear_message(said, "is damaged", "trying the previous one")


def both_damaged(site: Site, out: Path) -> str:
    for path in site.copy_half_done(out):
        path.write_bytes(b"")
    said = refused(site, out)
    starts_again(site, out)
    return clear_message(said, "no intact checkpoint")


def damaged_when_finished(name: str, damage: Callable[[Path], object], site: Site, out: Path) -> str:
    """Without checkpoints nothing can be made again; with them, whatever does not come from the training itself."""
    shutil.copytree(site.undisturbed, out)
    damage(out / name)
    said = refused(site, out)
    clear_message(said, f"{name} is", "Restore it from a copy, or train again with --overwrite")
    starts_again(site, out)
    shutil.rmtree(out)
    assert site.train(out, "--quiet", "--keep-checkpoints")[0] == 0
    damage(out / name)
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 0, said
    site.must_be_the_same(out)
    return clear_message(said, name, "it is made again from the last checkpoint")


def damaged_description(site: Site, out: Path) -> str:
    site.copy_half_done(out)
    (out / "run.json").write_bytes(b"")
    said = refused(site, out)
    starts_again(site, out)
    return clear_message(said, "run.json cannot be read")


def lost_records(site: Site, out: Path) -> str:
    site.copy_half_done(out)
    lines = (out / "records.jsonl").read_bytes()
    (out / "records.jsonl").unlink()
    said = refused(site, out)
    (out / "records.jsonl").write_bytes(lines)
    site.resumes(out)
    return clear_message(said, "records: restore it")


def edited_records(site: Site, out: Path) -> str:
    """A number of an earlier epoch."""
    site.copy_half_done(out)
    lines = (out / "records.jsonl").read_bytes()
    (out / "records.jsonl").write_bytes(lines.replace(b'"epoch": 1', b'"epoch": 7', 1))
    said = refused(site, out)
    (out / "records.jsonl").write_bytes(lines)
    site.resumes(out)
    return clear_message(said, "was changed since the last checkpoint: restore it")


def edited_checkpoint(site: Site, out: Path) -> str:
    """Its checksums are right, its position is not."""
    for path in site.copy_half_done(out):
        about = json.loads(path.with_suffix(".json").read_text())
        about["position"] |= {"epoch": 10**6, "records": 10**6}
        edit_json(path.with_suffix(".json"), position=about["position"])
    said = refused(site, out)
    starts_again(site, out)
    return clear_message(said, "The checkpoint position in", "is inconsistent with this run")


def refused(site: Site, out: Path) -> str:
    code, said = site.train(out, "--resume", "--quiet")
    assert code == 2, said
    return said


def starts_again(site: Site, out: Path) -> None:
    code, said = site.train(out, "--overwrite", "--quiet")
    assert code == 0, said
    site.must_be_the_same(out)


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(bytes(content))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _empty_json(path: Path) -> None:
    path.with_suffix(".json").write_bytes(b"")


DAMAGE: dict[str, Fault] = {
    "newest checkpoint empty": partial(damaged_newest, _empty),
    "newest checkpoint cut in half": partial(damaged_newest, _halve),
    "one bit of the newest checkpoint wrong": partial(damaged_newest, _flip),
    "newest checkpoint gone, its description there": partial(damaged_newest, Path.unlink),
    "newest checkpoint's description empty": partial(damaged_newest, _empty_json),
    "both checkpoints damaged": both_damaged,
    "result.json of a finished run empty": partial(damaged_when_finished, "result.json", _empty),
    "model of a finished run gone": partial(damaged_when_finished, "model/model.json", Path.unlink),
    "one bit of a finished run's model wrong": partial(damaged_when_finished, "model/model.safetensors", _flip),
    "manifest of a finished run empty": partial(damaged_when_finished, "manifest.json", _empty),
    "run.json empty": damaged_description,
    "records.jsonl gone": lost_records,
    "records.jsonl edited": edited_records,
    "a checkpoint edited by hand": edited_checkpoint,
}
