"""Whether there is a GPU, without importing torch: help shows the defaults that suit the device."""

from __future__ import annotations

import os
from pathlib import Path

DRIVERS = (Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"))


def expects_cpu(device: str) -> bool:
    """Whether a run with this --device will be on a CPU."""
    if device != "auto":
        return device == "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return hidden or not any(driver.exists() for driver in DRIVERS)
