"""How a run takes its steps: plain, captured in CUDA graphs, or compiled before."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from proud.distributed.group import ALONE
from proud.methods import method_class
from proud.training.fast import FastEpochs
from proud.training.loop import Epochs

if TYPE_CHECKING:
    import torch

    from proud.config import Steps
    from proud.methods.base import Method, Sizes
    from proud.training.run import Run

COMPILING_PAYS = 3_000  # steps: on an H200 compiling takes 40 to 60 s, and saves 19 ms of each step on PACS


def kind_of_steps(run: Run, device: torch.device, sizes: Sizes) -> Steps:
    """By settings and sizes alone: a resumed run takes the same steps."""
    if device.type != "cuda" or run.group is not ALONE:
        return "plain"
    if run.options.steps != "auto":
        return run.options.steps
    stages = method_class(run.config.method).stages(run.settings, sizes)
    return "compiled" if sum(stage.epochs * stage.steps for stage in stages) >= COMPILING_PAYS else "captured"


def choose_epochs(run: Run, method: Method, losses: Any) -> Epochs:
    device = method.context.device
    kind = kind_of_steps(run, device, method.context.sizes)
    if kind != "plain":
        return FastEpochs(method, compile_losses=kind == "compiled")
    if run.options.steps in ("compiled", "captured") and device.type == "cuda" and run.writes:
        warnings.warn("plain steps: CUDA graphs are not used under torchrun", stacklevel=2)
    return Epochs(losses)
