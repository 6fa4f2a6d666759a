"""Hyper-parameters per data set: the paper's (supplementary, section 1), and our own where it states none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from proud.config import DEFAULT_BACKBONE, Preset, RunConfig

PHOTOS: dict[str, Any] = {"lr": 0.001, "weight_decay": 0.01, "mixup": 2.0, "tau_uncertainty": 0.03, "flip": True}
DIGITS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.005, "mixup": 0.4, "tau_uncertainty": 0.1, "flip": False}

PRESETS: dict[str, dict[str, Any]] = {
    "pacs": {**PHOTOS, "epochs": 80, "pretrain_epochs": 30},
    "office-home": {**PHOTOS, "epochs": 60, "pretrain_epochs": 30, "weight_decay": 0.0001, "tau_uncertainty": 0.02},
    "digits-dg": {**DIGITS, "epochs": 800, "pretrain_epochs": 200},
    "embedded": {**DIGITS, "epochs": 20, "pretrain_epochs": 20, "batch_size": 64},
    # one's own data, by the kind of network; few images make too few steps for a network without pretrained weights
    "photos": {**PHOTOS, "epochs": 60, "pretrain_epochs": 30},
    "small": {**DIGITS, "epochs": 200, "pretrain_epochs": 100, "least_steps": 10},
}

# digits and other small images are warped instead of strongly augmented: Cutout would cover them
SIGNS: dict[str, Any] = {"warp": 0.5, "strong": False}

# exceptions for single methods: proud-plus needs fewer epochs, and its averages allow larger steps on photographs
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "proud-plus": {
        "pacs": {"epochs": 25, "lr": 0.003},
        "office-home": {"epochs": 40, "lr": 0.003},
        "digits-dg": {"epochs": 300, **SIGNS},
        "embedded": SIGNS,
        "photos": {"epochs": 40, "lr": 0.003},
        "small": {"epochs": 100, **SIGNS},
    }
}

# by the kind of images, whatever the data set; the reasons are in docs/guide/choosing.md
KINDS: dict[Preset, dict[str, Any]] = {
    "auto": {},
    "microscopy": {"flip": True, "turn": True, "hue": 0.05, "gray": 0.0, "outline": 0.0, "strong": False},
    "aerial": {"flip": True, "turn": True},
}


# one's own photographs on a CPU: at 224 px and batches of 128, minutes pass before the first step ends
CPU_SIZE = 128
CPU_BATCH = 32


def preset(
    data: str,
    model: str = "auto",
    method: str = "",
    on_cpu: bool = False,
    started: bool = False,
    kind: Preset = "auto",
) -> dict[str, Any]:
    """Settings of a method for a named benchmark or, for one's own data, for the kind of network and the device.

    `kind`: of images. `started`: from a finished model, without pretraining and with a quarter of the epochs."""
    name = data if data in PRESETS else "small" if model == "digits" else "photos"
    suited = {"batch_size": CPU_BATCH} if on_cpu and name == "photos" else {}
    found = PRESETS[name] | OWN.get(method, {}).get(name, {}) | suited | KINDS[kind]
    return found | {"pretrain_epochs": 0, "epochs": math.ceil(found["epochs"] / 4)} if started else found


def suited_size(run: RunConfig, model: str, on_cpu: bool) -> RunConfig:
    """With the size that suits a CPU, if neither size nor network were chosen. `model`: the network for the images."""
    chosen = run.size or run.model != "auto" or model != DEFAULT_BACKBONE
    return run if chosen or not on_cpu else replace(run, size=CPU_SIZE)


def chosen_for_cpu(size: int, batch_size: int) -> str:
    """One line about what would be larger on a GPU; 0: that was not chosen for the CPU."""
    chosen = [(f"--size {size}", 224)] * bool(size) + [(f"--batch-size {batch_size}", 128)] * bool(batch_size)
    flags, elsewhere = " ".join(flag for flag, _ in chosen), " and ".join(str(usual) for _, usual in chosen)
    return f"Chosen for a CPU: {flags} (on a GPU {elsewhere})." if chosen else ""
