"""Flags of `proud demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from proud.config import WholeNumber, value


@dataclass(frozen=True)
class DemoArguments:
    """Compare source-only training with ProUD on the built-in digits: pen labeled, street unseen."""

    out: Annotated[Path, value("DIR")] = Path("runs/demo")
    """folder for both runs; an earlier demo there is replaced"""
    seed: WholeNumber = 2022
    """seed of all random numbers"""
