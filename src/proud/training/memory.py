"""When a device runs out of memory: which batch size would fit."""

from __future__ import annotations

import traceback
from dataclasses import replace

import torch

from proud.methods.base import Method, MethodConfig
from proud.methods.context import Context, uncompiled
from proud.randomness import Randomness


def is_out_of_memory(error: BaseException) -> bool:
    """The GPU's own error, or the one of torch's allocator in main memory."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def too_large(error: BaseException, kind: type[Method], settings: MethodConfig, context: Context) -> str:
    """One message with a batch size that passed a step of every stage here. The caller has dropped the old method."""
    traceback.clear_frames(error.__traceback__)  # the tensors of the step that failed
    fits = fitting_batch_size(kind, settings, context)
    where = "GPU's memory" if context.device.type == "cuda" else "memory"
    if fits is None:
        return f"The {where} is too small for this network even two images at a time: use a smaller --size or --model."
    return (
        f"The {where} is too small for --batch-size {settings.batch_size}; {fits} would fit, and a smaller --size "
        "helps too. Either starts a new run: choose another --out. The last checkpoint is kept."
    )


def fitting_batch_size(kind: type[Method], settings: MethodConfig, context: Context) -> int | None:
    """By halving."""
    size = settings.batch_size // 2
    while size > 1 and not _one_step_fits(kind, replace(settings, batch_size=size), context):
        size //= 2
    return size if size > 1 else None


def _one_step_fits(kind: type[Method], settings: MethodConfig, context: Context) -> bool:
    if context.device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        method, random = kind(settings, replace(context, compile=uncompiled)), Randomness(context.seed, context.device)
        for stage in method.stage_list():
            if not stage.epochs:
                continue
            random.begin_epoch(stage.name, 0)
            method.begin_epoch(stage, 0, random)
            rows = {
                name: random.rows(name, population, 1, settings.batch_size)[0].to(context.device)
                for name, population in stage.pools.items()
            }
            method.step(stage, rows, random.draws(method.draws(stage)), method.losses)["loss"].item()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
