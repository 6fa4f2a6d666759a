"""Hyper-parameters per data set: the paper's (supplementary, section 1), and our own where it states none."""

from __future__ import annotations

from typing import Any

PHOTOS: dict[str, Any] = {"lr": 0.001, "weight_decay": 0.01, "mixup": 2.0, "tau_uncertainty": 0.03, "flip": True}
DIGITS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.005, "mixup": 0.4, "tau_uncertainty": 0.1, "flip": False}

PRESETS: dict[str, dict[str, Any]] = {
    "pacs": {**PHOTOS, "epochs": 80, "pretrain_epochs": 30},
    "office-home": {**PHOTOS, "epochs": 60, "pretrain_epochs": 30, "weight_decay": 0.0001, "tau_uncertainty": 0.02},
    "digits-dg": {**DIGITS, "epochs": 800, "pretrain_epochs": 200},
    "embedded": {**DIGITS, "epochs": 10, "pretrain_epochs": 20, "batch_size": 64},
    # one's own data, by the kind of network
    "photos": {**PHOTOS, "epochs": 60, "pretrain_epochs": 30},
    "small": {**DIGITS, "epochs": 200, "pretrain_epochs": 100},
}

# exceptions for single methods: proud-plus needs fewer epochs, and its averages allow larger steps on photographs
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "proud-plus": {
        "pacs": {"epochs": 25, "lr": 0.003},
        "office-home": {"epochs": 40, "lr": 0.003},
        "digits-dg": {"epochs": 100},
        "photos": {"epochs": 40, "lr": 0.003},
        "small": {"epochs": 100},
    }
}


def preset(data: str, model: str = "auto", method: str = "") -> dict[str, Any]:
    """Settings of a method for a named benchmark or, for one's own data, for the kind of network."""
    name = data if data in PRESETS else "small" if model == "digits" else "photos"
    return PRESETS[name] | OWN.get(method, {}).get(name, {})
