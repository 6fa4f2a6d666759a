"""One file of a folder of a run or a bench, damaged in one way."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from pathlib import Path
from typing import NamedTuple

from mutate import json_text, mutate_bytes, mutate_json, mutate_safetensors


class Damage(NamedTuple):
    kind: str
    file: str
    forged: bool = False


def damage(case: Path, other: Path, chance: random.Random) -> Damage:
    """One file, in one way."""
    files = sorted(
        path.relative_to(case) for path in case.rglob("*") if path.is_file() and not path.name.endswith("lock")
    )
    name = chance.choice(files)
    path = case / name
    kind = chance.choice(list(KINDS))
    content = path.read_bytes()
    KINDS[kind](path, content, other / name, chance)
    forged = kind == "structure" and chance.random() < 0.5
    if forged:
        forge(case, path)
    return Damage(kind, str(name), forged)


def bit(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    data = bytearray(content or b"x")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def some_bytes(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(mutate_bytes(content, chance))


def zeroed(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    start = chance.randrange(max(1, len(content))) // 4096 * 4096
    path.write_bytes(content[:start] + b"\0" * len(content[start : start + 4096]) + content[start + 4096 :])


def cut(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(content[: chance.choice((0, 1, len(content) // 2, max(0, len(content) - 1)))])


def longer(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(content + chance.choice((b"\0", b"\n", b"{}\n", content)))


def structure(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    """A value, a type, a shape or a name, in a file that stays well-formed."""
    if path.suffix == ".json":
        path.write_bytes(json_text(mutate_json(json.loads(content), chance), chance))
    elif path.suffix == ".jsonl" and content.strip():
        lines = content.splitlines()
        row = chance.randrange(len(lines))
        lines[row] = json.dumps(mutate_json(json.loads(lines[row]), chance)).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif path.suffix == ".safetensors":
        path.write_bytes(
            mutate_safetensors(content, chance) if chance.random() < 0.5 else other_values(content, chance)
        )
    else:
        some_bytes(path, content, other, chance)


def other_values(content: bytes, chance: random.Random) -> bytes:
    """The header stays; one number of a tensor becomes another."""
    (length,) = struct.unpack("<Q", content[:8])
    data = bytearray(content)
    place = chance.randrange(8 + length, len(data) - 3) if len(data) > 12 + length else len(data) - 1
    data[place : place + 4] = struct.pack("<f", chance.choice((0.0, 1e30, float("nan"), float("inf"), -1.0)))[
        : len(data) - place
    ]
    return bytes(data)


def another_runs(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.write_bytes(other.read_bytes() if other.is_file() else b"")


def swapped(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    beside = chance.choice([each for each in sorted(path.parent.iterdir()) if each.is_file()])
    taken = beside.read_bytes()
    beside.write_bytes(content)
    path.write_bytes(taken)


def gone(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()


def folder_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def link_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to(
        chance.choice((path, other, Path("/dev/zero"), Path("/dev/null"), Path("/proc/self/mem"), path.parent))
    )


def pipe_instead(path: Path, content: bytes, other: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


KINDS = {
    "bit": bit,
    "bytes": some_bytes,
    "zeroed": zeroed,
    "cut": cut,
    "longer": longer,
    "structure": structure,
    "structure, too": structure,
    "of another run": another_runs,
    "swapped": swapped,
    "gone": gone,
    "a folder": folder_instead,
    "a link": link_instead,
    "a pipe": pipe_instead,
}


def forge(case: Path, path: Path) -> None:
    """Right checksums, as far as the damaged file still has a place for them."""
    from proud.stamps import SEAL, sealed
    from toy import restamp

    try:
        about = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        if isinstance(about, dict) and SEAL in about:
            path.write_text(json.dumps(sealed({key: value for key, value in about.items() if key != SEAL})))
        if path.name == "results.jsonl":
            rows = [json.loads(line) for line in path.read_bytes().splitlines()]
            rows = [sealed({key: value for key, value in row.items() if key != SEAL}) for row in rows]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        beside = path.with_suffix(".json")
        if path.suffix == ".safetensors" and path.parent.name == "checkpoints" and beside.is_file():
            about = json.loads(beside.read_bytes())
            about["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            value = {key: item for key, item in about.items() if key != SEAL}
            beside.write_text(json.dumps(sealed(value) if SEAL in about else value))
        for folder in (case / "model", case):
            restamp(folder)
    except Exception:  # what cannot be forged is plain damage
        pass
