"""One reader for every JSON file: bounded size and depth, no repeated keys, finite numbers, and then the types, lengths
and ranges that a TypedDict of `proud.stored` declares. What is not declared is not read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proud.files import MOST_JSON_BYTES, read_regular
from proud.stamps import unsealed
from proud.text import one_line

MOST_NESTED = 20
Kind = TypeVar("Kind")


def read_record(path: Path, kind: type[Kind], most: int = MOST_JSON_BYTES) -> Kind:
    """OSError if the file cannot be read, ValueError if its content is not of this kind."""
    return parse_record(read_regular(path, most), kind)


def parse_record(content: bytes, kind: type[Kind]) -> Kind:
    """ValueError if the content is not valid JSON of this kind."""
    return as_record(parse_json(content), kind)


def parse_sealed(content: bytes, kind: type[Kind]) -> Kind:
    """The same for a file that holds its own checksum."""
    return as_record(unsealed(parse_json(content)), kind)


def parse_json(content: bytes) -> Any:
    """ValueError if the content is not valid JSON."""
    try:
        return json.loads(
            content.decode(), object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_no_constant
        )
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def as_record(value: Any, kind: type[Kind]) -> Kind:
    """The same for a value in memory: what is checked before it is written can be read back."""
    _check_depth(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_place_first(one_line(error))) from error


def parse_lines(content: bytes, kind: type[Kind], sealed_format: str = "") -> Iterator[Kind]:
    """One record per line of a JSONL file; empty lines are skipped. ValueErrors name the line.

    Lines of `sealed_format` hold their own checksum."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                value = parse_json(line)
                has_seal = sealed_format and isinstance(value, dict) and value.get("format") == sealed_format
                yield as_record(unsealed(value) if has_seal else value, kind)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def _place_first(text: str) -> str:
    """`task.size: expected int, got str`"""
    problem, _, place = text.replace("`", "").partition(" - at ")
    place = place.replace("$.", "").replace("$", "")
    return f"{place}: {problem[:1].lower()}{problem[1:]}" if place else problem


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > MOST_NESTED:
            raise ValueError("the JSON is nested too deeply")
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level, depth = [item for items in inside for item in items if isinstance(item, dict | list)], depth + 1


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the JSON has a duplicate key")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
