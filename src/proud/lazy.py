"""Heavy modules, imported at their first use, so that help is instant.

Modules that hold settings beside torch code write `from proud.lazy import torch`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["np", "ops", "torch"]


class LazyModule(ModuleType):
    """Imports the module when an attribute is first used; attributes are then kept."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        self.__dict__[name] = value
        return value


if TYPE_CHECKING:
    import numpy as np
    import torch

    from proud import ops
else:
    np = LazyModule("numpy")
    torch = LazyModule("torch")
    ops = LazyModule("proud.ops")
