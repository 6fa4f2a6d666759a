"""Damage is noticed: size and SHA-256 of each file, and JSON files that hold their own."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from proud.files import json_bytes

SEAL = "seal"


class Stamp(NamedTuple):
    """What a file must be."""

    size: int
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> Stamp:
        return cls(len(content), hashlib.sha256(content).hexdigest())


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """With the SHA-256 of all the rest."""
    return value | {SEAL: hashlib.sha256(json_bytes(value)).hexdigest()}


def unsealed(found: Any) -> dict[str, Any]:
    """The value that was sealed; ValueError if anything in it has changed."""
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    value = {key: item for key, item in found.items() if key != SEAL}
    if found.get(SEAL) != hashlib.sha256(json_bytes(value)).hexdigest():
        raise ValueError("the checksum does not match")
    return value
