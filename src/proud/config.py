"""What a run is: everything that decides its result. Imports no torch, so the command line answers at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import FlagCreatePairsOff, arg

from proud.errors import UserError
from proud.text import nfc
from proud.ranges import check_ranges

if TYPE_CHECKING:
    from proud.methods.base import MethodConfig

NOTHING = "none"
DEFAULT_BACKBONE = "resnet18.tv_in1k"
SMALL_SIDE = 64  # images up to this side get the digits net

Switch = FlagCreatePairsOff[bool]
Square = Literal["middle", "pad", "stretch"]
SQUARES: tuple[Square, ...] = get_args(Square)


def word(shown: str, hint: str | None = None) -> Any:
    """How the command line shows a flag's value, and what it says where the default is empty."""
    return arg(metavar=shown, help_behavior_hint=hint)


@dataclass(frozen=True)
class RunConfig:
    """What the run learns from, and with which network."""

    data: Annotated[str, word("DATA")] = "embedded"
    """a folder ROOT/<domain>/<class>/*, a CSV file (path,domain,label), a benchmark's name, or `embedded`"""
    root: Annotated[str, word("DIR", "(for benchmarks only)")] = ""
    """where a named benchmark (digits-dg, pacs, office-home) is unpacked"""
    labeled: Annotated[str, word("DOMAIN", "(required)")] = ""
    """the domain whose labels are used"""
    test: Annotated[str, word("DOMAIN")] = NOTHING
    """the unseen domain, for measuring only; `none`: train on all domains, measure on validation images alone"""
    unlabeled: Annotated[tuple[str, ...], word("DOMAIN ...", "(default: all the others)")] = ()
    """domains used without labels"""
    labels: Annotated[str, word("FILE", "(optional)")] = ""
    """CSV file (path,domain,label) with labels for a few images of unlabeled domains, as `proud label-next` asks"""
    method: Annotated[str, word("NAME")] = "proud"
    """training method"""
    model: Annotated[str, word("NAME")] = "auto"
    """`digits`, any timm name, or `auto`: digits for images up to 64 px, else resnet18.tv_in1k"""
    weights: Annotated[str, word("auto|none|FILE")] = "auto"
    """initial weights: `auto` downloads the backbone's, `none` is random, or a safetensors FILE"""
    size: Annotated[int, word("PIXELS", "(default: the network's own)")] = 0
    """side of the square images that the network sees"""
    square: Square = "middle"
    """how pictures become squares: their `middle` alone, or all of them, `pad` with grey bars or `stretch`"""
    val: float = 0.1
    """share of the labeled domain kept for validation, never trained on"""
    seed: int = 2022
    """decides every random choice"""
    skip_bad: Switch = False
    """leave unreadable images out instead of stopping"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on CUDA, fp32 elsewhere"""

    def __post_init__(self) -> None:
        """Domains are called what they are called when they are read."""
        object.__setattr__(self, "labeled", nfc(self.labeled))
        object.__setattr__(self, "test", nfc(self.test))
        object.__setattr__(self, "unlabeled", tuple(map(nfc, self.unlabeled)))


@dataclass(frozen=True)
class Options:
    """Where and how it runs. What is evaluated, and when, never changes the trained weights."""

    out: Annotated[str, word("DIR", "(default: runs/<data>-<labeled>-<test>-<method>-<seed>)")] = ""
    """folder for the run's files"""
    device: Annotated[str, word("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute; `auto` takes CUDA if it is there"""
    threads: Annotated[int, word("INT", "(default: half the cores)")] = 0
    """CPU threads; more than the free cores make it slower, not faster"""
    eval_every: int = 1
    """epochs between evaluations; the last five are always evaluated"""
    fast: bool = True
    """compiled steps in CUDA graphs, on CUDA"""
    resume: Switch = False
    """go on with the run in the output folder"""
    overwrite: Switch = False
    """replace the run in the output folder"""
    quiet: Switch = False
    """no progress bar"""
    cache: Annotated[str, word("auto|none|DIR")] = "auto"
    """decoded images on disk instead of in memory; `auto`: above 3 GiB, in the user's cache folder"""
    tensorboard: Switch = False
    """write scalars and mixed images for TensorBoard to OUT/tensorboard"""


def choose_model(model: str, native_side: int) -> str:
    """`auto` looks at the images' shorter side."""
    if model != "auto":
        return model
    return "digits" if native_side <= SMALL_SIDE else DEFAULT_BACKBONE


def flat(run: RunConfig, method: MethodConfig) -> dict[str, Any]:
    """Both configs as one JSON-able dict, as stored beside every result."""
    values = _plain(asdict(run) | {"method_config": asdict(method)})
    if not run.labels:  # as runs were stored before there was this setting
        del values["labels"]
    return values | {"unlabeled": list(run.unlabeled)}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NumPy's numbers become Python's."""
    return {key: _plain(value) if isinstance(value, dict) else _number(value) for key, value in values.items()}


def _number(value: Any) -> Any:
    if isinstance(value, bool | int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


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


KINDS: dict[str, tuple[type, ...]] = {"int": (Integral,), "float": (Real,), "bool": (bool,), "str": (str,)}


def check(run: RunConfig, method: MethodConfig, options: Options | None = None) -> None:
    """Settings that can be refused before any image is read."""
    check_kinds(run)
    if not run.labeled:
        raise UserError("Say which domain has labels: --labeled DOMAIN.")
    if run.labeled == run.test:
        raise UserError(f"--labeled and --test are both {run.labeled!r}: the test domain must be an unseen one.")
    if not 0 <= run.val < 1:
        raise UserError(f"--val is a share of the labeled domain, 0 ≤ val < 1; got {run.val}.")
    at_least(0, seed=run.seed, size=run.size)
    if options is not None:
        at_least(0, threads=options.threads)
        at_least(1, eval_every=options.eval_every)
    check_kinds(method)
    check_ranges(method)


def check_kinds(settings: RunConfig | MethodConfig) -> None:
    """Those from Python may be anything."""
    for name, kind in get_type_hints(type(settings)).items():
        words, value = get_args(kind), getattr(settings, name)
        if get_origin(kind) is Literal and value not in words:
            raise UserError(f"{flag(name)} is {', '.join(words[:-1])} or {words[-1]}, got {value!r}.")
    for field in fields(settings):
        kind = str(field.type).removeprefix("Annotated[").partition(",")[0].replace("Switch", "bool")
        value, kinds = getattr(settings, field.name), KINDS.get(kind)
        if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and kind != "bool")):
            raise UserError(f"{flag(field.name)} must be of the kind {kind}, got {value!r}.")


def at_least(low: int, **values: float) -> None:
    for name, value in values.items():
        if not value >= low:
            raise UserError(f"{flag(name)} must be at least {low}, got {value}.")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
