"""proud: semi-supervised domain generalization, as a library and a command."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("proud needs the file locks and signals of Linux or macOS: on Windows, use it under WSL")

__version__ = "0.1.0"
__all__ = ["ProUD", "UserError", "__version__", "load"]

if TYPE_CHECKING:
    from proud.errors import UserError
    from proud.estimator import ProUD
    from proud.model.load import load_model as load

_HOMES = {
    "ProUD": ("proud.estimator", "ProUD"),
    "load": ("proud.model.load", "load_model"),
    "UserError": ("proud.errors", "UserError"),
}


def __getattr__(name: str) -> Any:
    """Import on first use: `import proud` is instant, and `proud.load` imports nothing of training."""
    if name not in _HOMES:
        raise AttributeError(f"module 'proud' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
