"""Reading a model that may come from a stranger: JSON and safetensors, looked at before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from proud.config import SQUARES
from proud.errors import UserError
from proud.nets.models import ModelSpec, Net, build_net
from proud.text import nfc
from proud.files import bytes_of, check_tensors, read_json, read_tensors
from proud.training.run import MODEL_FORMAT

MOST_CLASSES = 100_000
LARGEST_SIDE = 4096


def read_model(folder: Path) -> tuple[Net, ModelSpec, tuple[str, ...], dict[str, Any]]:
    """The network, its input format, the names of its classes, and the config of its run."""
    try:
        about = read_json(folder / "model.json")
        if not isinstance(about, dict) or about.get("format") != MODEL_FORMAT:
            raise ValueError(f"model.json is not of the format {MODEL_FORMAT}")
        spec, classes = read_spec(about["spec"]), read_classes(about["classes"])
        config = about.get("config", {})
        if len(classes) != spec.classes or not isinstance(config, dict):
            raise ValueError("its classes or its config are not ours")
        expected = expected_tensors(spec)
        tensors = read_tensors(folder / "model.safetensors", bytes_of(expected.values()))
        check_tensors(tensors, expected)
        net = build_net(spec, width=expected["head.direction"].shape[1])
        net.load_state_dict(tensors)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        text = " ".join(str(error).split())[:500]
        raise UserError(f"{folder} does not hold a model of this program: {text}") from error
    return net, spec, classes, config


def read_warnings(folder: Path) -> tuple[str, ...]:
    """What the run said of itself when it ended."""
    told = read_json(folder / "model.json").get("warnings", [])
    if not isinstance(told, list) or not all(isinstance(text, str) for text in told):
        raise UserError(f"{folder} does not hold a model of this program: its warnings are not ours")
    return tuple(told)


def read_spec(given: Any) -> ModelSpec:
    """Only networks that can be made from their name alone: `hf-hub:…` and `local-dir:…` would read something else."""
    numbers = [float(value) for value in (*given["mean"], *given["std"])]
    if len(given["mean"]) != 3 or len(given["std"]) != 3 or not all(abs(n) < 1e4 for n in numbers):
        raise ValueError("mean and std are not three numbers each")
    mean, std = numbers[:3], numbers[3:]
    name, classes, size = given["name"], given["classes"], given["size"]
    if not isinstance(name, str) or type(classes) is not int or type(size) is not int or min(std) < 1e-4:
        raise ValueError("its name, classes, size or std are not ours")
    if not 0 < size <= LARGEST_SIDE or not 0 < classes <= MOST_CLASSES:
        raise ValueError("classes or size out of range")
    if name != "digits" and not known_to_timm(name):
        raise ValueError(f"there is no network {name[:100]!r}")
    own_share = float(given.get("own_share", 0.0))
    if not 0 <= own_share <= 1:
        raise ValueError("its share of own statistics is not between 0 and 1")
    square = given.get("square", "middle")
    if square not in SQUARES:
        raise ValueError("how its pictures become squares is not known")
    return ModelSpec(name, classes, size, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]), own_share, square)


def known_to_timm(name: str) -> bool:
    import timm

    return not set(name) & set(":/\\") and bool(timm.is_model(name))


def read_classes(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError("its classes are not a list of names")
    if len(set(given)) < len(given):
        raise ValueError("two of its classes have the same name")
    return tuple(map(nfc, given))


def expected_tensors(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Names, shapes and types without memory, so that a made-up size costs nothing."""
    try:
        with torch.device("meta"):
            return build_net(spec).state_dict()
    except (
        NotImplementedError,
        RuntimeError,
        UserError,
    ):  # some networks compute with their weights while they are built
        return build_net(spec).state_dict()
