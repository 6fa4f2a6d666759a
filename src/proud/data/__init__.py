"""Domains as uint8 tensors: where images come from, how they are decoded, and who may see which labels.

Names are imported at their first use: `import proud.data` stays free of torch. The main entrance is
`proud.data.task.assemble`.
"""
# ruff: noqa: F401 (the imports below are for type checkers and editors)

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proud.data.arrays import assemble_arrays
    from proud.data.benchmarks import catalog_for, check
    from proud.data.catalog import Catalog, scan_csv, scan_folder
    from proud.data.types import Audit, EvaluationData, LabeledDomain, Task, TrainingData, UnlabeledDomain
    from proud.data.embedded import contact_sheet, load_embedded
    from proud.data.decode import BadImage, decode, decode_all, stored_side

_HOME = {
    "Audit": "domain",
    "BadImage": "store",
    "Catalog": "catalog",
    "EvaluationData": "domain",
    "LabeledDomain": "domain",
    "Task": "domain",
    "TrainingData": "domain",
    "UnlabeledDomain": "domain",
    "assemble_arrays": "arrays",
    "catalog_for": "benchmarks",
    "check": "benchmarks",
    "contact_sheet": "embedded",
    "decode": "store",
    "decode_all": "store",
    "load_embedded": "embedded",
    "scan_csv": "catalog",
    "scan_folder": "catalog",
    "stored_side": "store",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"proud.data.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
