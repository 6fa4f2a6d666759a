"""proud: semi-supervised domain generalization, as a library and a command."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("proud needs file locks and signals of Linux or macOS: on Windows, use it under WSL")

__version__ = "0.1.0"
__all__ = ["ProUD", "UserError", "__version__", "load"]

if TYPE_CHECKING:
    from proud.errors import UserError
    from proud.estimator import ProUD, load

_HOMES = {"ProUD": "proud.estimator", "load": "proud.estimator", "UserError": "proud.errors"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import proud` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'proud' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
