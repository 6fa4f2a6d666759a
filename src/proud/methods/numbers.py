"""A method's float settings as tensors: runs that differ in their values alone share one compiled step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, get_type_hints

from proud.lazy import torch

if TYPE_CHECKING:
    from proud.methods.base import MethodConfig


def float_settings(config: MethodConfig) -> list[str]:
    """Names of the settings that are declared as floats, whatever was given for them."""
    return [name for name, kind in get_type_hints(type(config)).items() if kind is float]


def on_device(config: MethodConfig, device: torch.device) -> SimpleNamespace:
    """The float settings by name, as scalar tensors."""
    return SimpleNamespace(
        **{name: torch.tensor(float(getattr(config, name)), device=device) for name in float_settings(config)}
    )
