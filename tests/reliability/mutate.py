"""Seeded damage: valid files turned into almost valid ones."""

from __future__ import annotations

import io
import json
import random
import struct
from typing import Any

import numpy as np
from PIL import Image

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)
STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**9,
    10**30,
    -(10**400),
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 10_000,
    "../../../etc/passwd",
    "/etc/passwd",
    "hf-hub:stranger/model",
    "local-dir:/tmp",
    "a\x00b",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "\x1b]0;title\x07",
    "\udcff",
    [],
    [[]],
    {},
    {"a": {"b": {}}},
    ["x"] * 1000,
    "__import__('os').system('true')",
]


def seeds_of_images() -> list[tuple[str, bytes]]:
    """Small valid images of every format that is read."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    made = [
        ("PNG", image, {}),
        ("PNG", image.convert("P"), {"transparency": 3}),
        ("PNG", Image.fromarray(pixels[..., 0].astype(np.uint16) * 200), {}),
        ("PNG", image.convert("RGBA"), {}),
        ("JPEG", image, {"quality": 80}),
        ("JPEG", image.convert("CMYK"), {"progressive": True}),
        ("BMP", image, {}),
        ("WEBP", image, {}),
        ("WEBP", image, {"lossless": True, "save_all": True, "append_images": [image.rotate(90)]}),
        ("TIFF", image, {"compression": "tiff_lzw"}),
        ("TIFF", image, {"compression": "jpeg"}),
        ("TIFF", Image.fromarray(pixels[..., 0].astype(np.int32)), {}),
        ("GIF", image.convert("P"), {"save_all": True, "append_images": [image.rotate(90).convert("P")]}),
        ("PPM", image, {}),
    ]
    found = []
    for kind, source, options in made:
        file = io.BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6
        more = {"exif": exif} if kind in ("PNG", "JPEG", "WEBP", "TIFF") else {}
        source.save(file, kind, **options, **more)
        found.append((kind.lower(), file.getvalue()))
    return found


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """A few flips, cuts, copies and extreme numbers; most land in the first bytes, where the structure is."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not data:
            break
        place = chance.randrange(min(len(data), 64) if chance.random() < 0.6 else len(data))
        kind = chance.randrange(6)
        if kind == 0:
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[place] = chance.choice(INTERESTING)
        elif kind == 2:
            size = chance.choice(("<H", ">H", "<I", ">I", "<Q"))
            value = chance.choice((0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63)) % 2 ** (
                8 * struct.calcsize(size)
            )
            data[place : place + struct.calcsize(size)] = struct.pack(size, value)
        elif kind == 3:
            del data[place : place + chance.randrange(1, 64)]
        elif kind == 4:
            data[place:place] = data[place : place + chance.randrange(1, 64)] * chance.choice((1, 2, 100))
        else:
            data[place:] = b"" if chance.random() < 0.5 else data[place:][::-1]
    return bytes(data)


def mutate_json(value: Any, chance: random.Random) -> Any:
    """One place in it becomes something strange, disappears, or is nested."""
    value = json.loads(json.dumps(value))
    holder, key = chance.choice(list(_places(value)))
    kind = chance.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = [holder[key]]
    else:
        holder[key] = chance.choice(STRANGE)
    return value


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _places(value[key])


def json_text(value: Any, chance: random.Random) -> bytes:
    """As a file: sometimes with repeated names, nested a hundred thousand deep, or with bytes wrong."""
    text = json.dumps(value).encode()
    kind = chance.randrange(12)
    if kind == 0:
        return mutate_bytes(text, chance)
    if kind == 1:
        return text[:-1] + b', "format": "other"}'
    if kind == 2:
        return b"[" * 100_000
    if kind == 3:
        return text[:-1] + b', "deep": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001
    return text


def mutate_safetensors(content: bytes, chance: random.Random) -> bytes:
    """The header as JSON, its length, or any bytes."""
    (length,) = struct.unpack("<Q", content[:8])
    kind = chance.randrange(4)
    if kind == 0:
        return mutate_bytes(content, chance)
    if kind == 1:
        wrong = chance.choice((0, 1, 2**31, 2**63 - 1, length + 1, length - 1, 10**8 + 1))
        return struct.pack("<Q", wrong) + content[8:]
    header = json.loads(content[8 : 8 + length])
    changed = header
    for _ in range(chance.choice((1, 1, 3))):
        changed = mutate_json(changed, chance) or {"x": 1}
    if kind == 3:
        name = chance.choice([key for key in header if key != "__metadata__"])
        entry = dict(header[name])
        entry["dtype"] = chance.choice(("F64", "BF16", "I64", "BOOL", "F8_E4M3", "PICKLE"))
        changed = header | {name: entry}
    text = json.dumps(changed).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]
