"""What a run is: everything that decides its result. Imports no torch, so the command line answers at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from proud.errors import UserError

if TYPE_CHECKING:
    from proud.methods.base import MethodConfig

NOTHING = "none"


@dataclass(frozen=True)
class RunConfig:
    """Data, network and seed of a run; the method's own settings are in its own config."""

    data: str = "embedded"
    """folder ROOT/<domain>/<class>/*, a CSV (path,domain,label), a benchmark's name, or `embedded`"""
    root: str = ""
    """where a named benchmark (digits-dg, pacs, office-home) is unpacked"""
    labeled: str = ""
    """the domain whose labels are used"""
    test: str = NOTHING
    """the unseen domain, for measuring only; `none` trains on all domains"""
    unlabeled: tuple[str, ...] = ()
    """domains used without labels; default: all that are neither labeled nor test"""
    method: str = "proud"
    """training method"""
    model: str = "auto"
    """`digits`, any timm name, or `auto`: digits for images up to 64 px, else resnet18.tv_in1k"""
    weights: str = "auto"
    """initial weights: `auto` downloads the backbone's, `none` is random, or a safetensors FILE"""
    size: int = 0
    """image side in pixels; 0 takes the network's own"""
    val: float = 0.1
    """share of the labeled domain kept for validation, never trained on"""
    seed: int = 2022
    """decides every random choice"""
    skip_bad: bool = False
    """leave unreadable images out instead of stopping"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on CUDA, fp32 elsewhere"""


@dataclass(frozen=True)
class Options:
    """How a run is carried out; none of this changes its result."""

    out: str = ""
    """folder for the run's files; default: runs/<data>-<labeled>-<test>-<method>-<seed>"""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`"""
    threads: int = 0
    """CPU threads; 0 takes half the cores, at least one (see docs/design.md)"""
    eval_every: int = 1
    """epochs between evaluations; the last five are always evaluated"""
    fast: bool = True
    """compiled steps in CUDA graphs, on CUDA"""
    resume: bool = False
    """go on with the run in the output folder"""
    overwrite: bool = False
    """replace the run in the output folder"""
    quiet: bool = False
    """no progress bar"""


def flat(run: RunConfig, method: MethodConfig) -> dict[str, Any]:
    """Both configs as one JSON-able dict, as stored beside every result."""
    values = asdict(run) | {"method_config": asdict(method)}
    return values | {"unlabeled": list(run.unlabeled)}


def config_difference(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`name: old → new` for every setting that differs, method settings included."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += config_difference(a, b)
        elif a != b:
            lines.append(f"{key}: {a} → {b}")
    return lines


def check(run: RunConfig, method: MethodConfig) -> None:
    """Settings that can be refused before any image is read."""
    if not run.labeled:
        raise UserError("Say which domain has labels: --labeled NAME.")
    if run.labeled == run.test:
        raise UserError(f"--labeled and --test are both {run.labeled!r}: the test domain must be an unseen one.")
    if not 0 <= run.val < 1:
        raise UserError(f"--val is a share of the labeled domain, 0 ≤ val < 1; got {run.val}.")
    for field in fields(method):
        value = getattr(method, field.name)
        low = {"epochs": 1, "batch_size": 1, "pretrain_epochs": 0, "views": 1}.get(field.name)
        if low is not None and value < low:
            raise UserError(f"--{field.name.replace('_', '-')} must be at least {low}, got {value}.")
        if field.name.startswith(("tau_", "lr", "mixup")) and not isinstance(value, bool) and value <= 0:
            raise UserError(f"--{field.name.replace('_', '-')} must be positive, got {value}.")
