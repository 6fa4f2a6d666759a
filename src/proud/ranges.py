"""Which numbers a method's settings may be."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from proud.errors import UserError

if TYPE_CHECKING:
    from proud.methods.base import MethodConfig

COUNTS = {"epochs", "batch_size", "views", "rounds", "pseudo_domains", "feature_steps"}
NOT_NEGATIVE = {"pretrain_epochs", "weight_decay", "alpha", "ema_epochs", "labeled_weight", "classifier"}
NOT_NEGATIVE |= {"consistency", "rampup_epochs", "rampup_steps", "unlabeled_weight", "contrast_weight"}
NOT_NEGATIVE |= {"likelihood_weight"}
POSITIVE = {"lr", "style_lr", "pml_tau", "spread", "tau_uncertainty", "tau_ratio", "temperature"}
POSITIVE |= {"contrast_temperature"}
SHARES = {"threshold", "balance", "warp", "own_share", "outline", "confidence", "drop_share", "batch_share"}
SHARES |= {"batch_share_growth", "warmup", "spatial_p", "style_share", "adapt_share", "clean_share", "forget_rate"}
SHARES |= {"mixstyle_p"}
MEMORIES = {"momentum", "ema_decay", "ema_decay_rampup"}  # what is kept of the past: not all of it
BETAS = {"mixup", "beta", "intermediate_mixup", "mixstyle_alpha"}  # see `ops.beta_quantile`


def check_ranges(settings: MethodConfig) -> None:
    """Refuse what could only end in nonsense, before hours are spent on it."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, bool | str):
            continue
        wrong = out_of_range(field.name, value)
        if wrong:
            raise UserError(f"--{field.name.replace('_', '-')} must be {wrong}, got {value}.")


def out_of_range(name: str, value: float) -> str:
    """What the value should be; empty where it is. Of a setting that is not listed only that it is a finite number."""
    checks = [
        (COUNTS, value >= 1, "at least 1"),
        (NOT_NEGATIVE, value >= 0, "at least 0"),
        (POSITIVE, value > 0, "positive"),
        (SHARES, 0 <= value <= 1, "between 0 and 1"),
        (MEMORIES, 0 <= value < 1, "at least 0 and below 1"),
        (BETAS, value >= 0.1, "at least 0.1"),
    ]
    for names, fits, text in checks:
        if name in names and not (fits and math.isfinite(value)):
            return text
    return "" if math.isfinite(value) else "a finite number"
