"""Heavy modules, imported at their first use, so that `proud --help` answers at once.

Modules that hold a config beside torch code write `from proud.lazy import torch`. The name is the real module: its
import merely waits for the first attribute access (`importlib.util.LazyLoader`).
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["np", "ops", "torch"]


def lazy_import(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import numpy as np
    import torch

    from proud import ops
else:
    np = lazy_import("numpy")
    torch = lazy_import("torch")
    ops = lazy_import("proud.ops")
