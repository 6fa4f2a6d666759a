"""Tensors from files are checked here, before anything computes with them: names, shapes, types, finite values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proud.files import MOST_HEADER_BYTES, MOST_TENSOR_BYTES, open_plain
from proud.stored import Name, TensorHead
from proud.text import one_line
from proud.typed import parse_record

if TYPE_CHECKING:
    from torch import Tensor


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in a safetensors file, from its header alone. OSError or ValueError if it has none."""
    with open_plain(path, MOST_TENSOR_BYTES) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MOST_HEADER_BYTES:
            raise ValueError("not a safetensors file (its header is too long)")
        heads = parse_record(file.read(length), dict[Name, TensorHead])
    return {name: tuple(head["shape"]) for name, head in heads.items() if "shape" in head}


def check_shapes(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, Tensor]) -> None:
    """ValueError unless names and shapes are as expected."""
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    if missing or unknown:
        raise ValueError(f"tensors are missing ({missing[:3]}) or unexpected ({one_line(unknown[:3], 200)})")
    for name, tensor in wanted.items():
        if found[name] != tuple(tensor.shape):
            raise ValueError(f"the tensor {name} is {list(found[name])}, not {list(tensor.shape)}")


def check_tensors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """ValueError unless names, shapes and types are as expected and every number is finite."""
    check_shapes({name: tuple(tensor.shape) for name, tensor in found.items()}, wanted)
    for name, tensor in wanted.items():
        if found[name].dtype != tensor.dtype:
            raise ValueError(f"the tensor {name} is {found[name].dtype}, not {tensor.dtype}")
    check_finite(found)


def check_finite(found: Mapping[str, Tensor]) -> None:
    for name, tensor in found.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"the tensor {one_line(name, 200)} has infinite or NaN values")


class Rule(NamedTuple):
    """What an array may be: `shape` names its sizes, as in "N d"; the same capital is the same size in one group, the
    same small letter in the whole file."""

    kind: str
    """floating, whole or bool"""
    shape: str
    low: int | None = None
    below: str = ""
    """whole numbers lie in low ≤ x < the size of this name"""


def check_arrays(found: Mapping[str, Tensor], rules: Mapping[str, Rule], sizes: Mapping[str, int]) -> None:
    """ValueError unless every tensor GROUP/FIELD follows the rule of its field. `sizes`: those that are known."""
    check_finite(found)
    known: dict[tuple[str, str], int] = {}
    for name, tensor in found.items():
        rule, group, shown = _rule_for(name, rules), name.rpartition("/")[0], one_line(name, 200)
        kind = "floating" if tensor.is_floating_point() else "bool" if str(tensor.dtype) == "torch.bool" else "whole"
        letters = rule.shape.split()
        if kind != rule.kind or tensor.ndim != len(letters):
            raise ValueError(f"the tensor {shown} is {tensor.dtype} {list(tensor.shape)}")
        for letter, length in zip(letters, tensor.shape, strict=True):
            place = ("" if letter.islower() else group, letter)
            wanted = int(letter) if letter.isdigit() else sizes.get(letter) or known.setdefault(place, length)
            if length != wanted:
                raise ValueError(f"the tensor {shown} is {list(tensor.shape)}, not {rule.shape}")
        most = sizes.get(rule.below)
        low, high = (int(tensor.min()), int(tensor.max())) if rule.low is not None and tensor.numel() else (0, 0)
        if low < (rule.low or 0) or (most is not None and high >= most):
            raise ValueError(f"the tensor {shown} has numbers out of range")


def _rule_for(name: str, rules: Mapping[str, Rule]) -> Rule:
    for field, rule in rules.items():
        if name.startswith(field[:-1]) if field.endswith("/*") else name.rpartition("/")[2] == field:
            return rule
    raise ValueError(f"the tensor {one_line(name, 200)} is unexpected")


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """An upper bound for the size of a file with these tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + MOST_HEADER_BYTES
