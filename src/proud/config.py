"""Settings, each declared once: what is learned from, with which network, and how the run is executed.

The command line, Python, run.json and benches all read these classes. Limits and choices are part of a field's type.
Imports no torch, so that help is instant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from tyro.conf import FlagCreatePairsOff, arg

from proud.errors import UserError
from proud.text import nfc

if TYPE_CHECKING:
    from proud.methods.base import MethodConfig

NOTHING = "none"
DEFAULT_BACKBONE = "resnet18.tv_in1k"
SMALL_SIDE = 64  # images up to this side get the digits net
MOST_SITES = 20  # in a pool
MAX_PIXELS = 100  # million
LAST_EPOCHS = 5  # scores and signals are means over these


def value(metavar: str, hint: str | None = None) -> Any:
    """The placeholder of a flag's value in help, and the text in place of an empty default."""
    return arg(metavar=metavar, help_behavior_hint=hint)


# ---- types with limits


@dataclass(frozen=True)
class Limit:
    """The values a number may have: low ≤ x ≤ high, or with `strict` low < x; with `below` x < high."""

    text: str
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    below: bool = False

    def holds(self, x: float) -> bool:
        above = x > self.low if self.strict else x >= self.low
        return above and (x < self.high if self.below else x <= self.high)


AT_LEAST_0 = Limit("at least 0", 0)
MOST_THREADS = 1024
Threads = Annotated[int, Limit(f"between 0 and {MOST_THREADS}", 0, MOST_THREADS)]
MOST_BATCH = 1_000_000
BatchSize = Annotated[
    int, Limit(f"at least 2 (one image has no batch statistics) and at most {MOST_BATCH:,}", 2, MOST_BATCH)
]
Switch = FlagCreatePairsOff[bool]
Count = Annotated[int, Limit("at least 1", 1)]
WholeNumber = Annotated[int, AT_LEAST_0]
NotNegative = Annotated[float, AT_LEAST_0]
Positive = Annotated[float, Limit("positive", 0, strict=True)]
Share = Annotated[float, Limit("between 0 and 1", 0, 1)]
Decay = Annotated[float, Limit("at least 0 and below 1", 0, 1, below=True)]
BetaParameter = Annotated[float, Limit("at least 0.1", 0.1)]  # see `ops.beta_quantile`
Square = Literal["middle", "pad", "stretch"]
Steps = Literal["auto", "compiled", "captured", "plain"]
Preset = Literal["auto", "microscopy", "aerial"]
SQUARES: tuple[Square, ...] = get_args(Square)


# ---- what a run learns from, and with which network


@dataclass(frozen=True)
class ReadSpec:
    """How images are read; the same in all runs of a bench."""

    size: Annotated[WholeNumber, value("PIXELS", "(default: the network's own; 128 for photographs on a CPU)")] = 0
    """side of the square images that the network sees"""
    square: Square = "middle"
    """non-square images: centre-cropped (`middle`), padded with grey (`pad`), or stretched (`stretch`)"""
    preset: Preset = "auto"
    """kind of images, which changes defaults of the augmentation: `microscopy` (stained cells or tissue), `aerial`"""
    val: Decay = 0.1
    """share of the labeled domain held out for validation, unless the data set ships a split"""
    skip_bad: Switch = False
    """skip unreadable images instead of stopping"""
    follow_links: Switch = False
    """also read images behind symbolic links that lead out of the data folder"""
    max_pixels: Annotated[Count, value("MILLIONS")] = MAX_PIXELS
    """largest image that is read, in millions of pixels: larger ones take much memory"""


@dataclass(frozen=True)
class NetSpec:
    """Which network, from which weights, in which precision."""

    model: Annotated[str, value("NAME")] = "auto"
    """`digits`, any timm name, or `auto`: digits for images up to 64 px, else resnet18.tv_in1k"""
    weights: Annotated[str, value("auto|none|FILE")] = "auto"
    """initial weights: `auto` downloads the backbone's, `none` is random, or a FILE (safetensors, .pth, .pt)"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on CUDA, fp32 elsewhere; bf16 is faster on CPUs with AVX-512 BF16 or AMX"""


@dataclass(frozen=True)
class DomainSpec:
    """Which images there are, and which part they play."""

    data: Annotated[str, value("DATA")] = "embedded"
    """folder ROOT/<domain>/<class>/*, CSV file (path,domain,label), benchmark, or `embedded`"""
    root: Annotated[str, value("DIR", "(for benchmarks only)")] = ""
    """folder of a named benchmark (digits-dg, pacs, office-home, wbc, rsscn7)"""
    labeled: Annotated[str, value("SITE", "(required)")] = ""
    """the domain (folder name) whose labels are used"""
    test: Annotated[str, value("SITE")] = NOTHING
    """the unseen domain, for measuring only; `none`: use all domains for training"""
    unlabeled: Annotated[tuple[str, ...], value("SITE ...", "(default: all the others)")] = ()
    """domains used without labels"""
    labels: Annotated[str, value("FILE", "(optional)")] = ""
    """CSV file (path,domain,label) with labels for a few images of unlabeled domains, from `proud label-next`"""
    add: Annotated[tuple[str, ...], value("SITE ...", "(optional)")] = ()
    """more unlabeled sites: folders of images anywhere, or domains of the data"""
    unlabeled_pool: Annotated[str, value("FOLDER", "(optional)")] = ""
    """unlabeled images of unknown origin, which are grouped into sites by their style"""
    sites: Annotated[str, value("auto|K")] = "auto"
    """number of sites in the pool; `auto`: the number with the best separation"""

    def __post_init__(self) -> None:
        """Domain names are compared in Unicode's composed form, as they are read."""
        object.__setattr__(self, "labeled", nfc(self.labeled))
        object.__setattr__(self, "test", nfc(self.test))
        object.__setattr__(self, "unlabeled", tuple(map(nfc, self.unlabeled)))
        object.__setattr__(self, "add", tuple(self.add))


@dataclass(frozen=True)
class TaskSpec(ReadSpec, DomainSpec):
    """All that decides which images a run learns from and is measured on."""

    seed: WholeNumber = 2022
    """seed of all random numbers"""


@dataclass(frozen=True)
class RunConfig(NetSpec, TaskSpec):
    """What the run learns from, with which method and network."""

    method: Annotated[str, value("NAME")] = "proud-plus"
    """training method"""
    start_from: Annotated[str, arg(name="from", metavar="RUN", help_behavior_hint="(optional)")] = ""
    """start from the model of a finished run instead of pretraining; its data, network and method are the defaults"""

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """From the config in run.json or model.json. Raises a UserError if it is not valid."""
        known = {field.name for field in fields(cls)}
        given = {name: item for name, item in stored.items() if name in known}
        for name in ("unlabeled", "add"):
            if not isinstance(given.get(name, []), list | tuple):
                raise UserError(f"{name} must be a list of domains, got {given[name]!r}.")
        try:
            run = cls(**given | {"unlabeled": tuple(given.get("unlabeled", ()))})
        except (TypeError, AttributeError) as error:
            raise UserError(f"Invalid settings: {error}.") from error
        check(run)
        return run


# ---- how it is executed


@dataclass(frozen=True)
class Machine:
    """Where it is computed; the same in all runs of a bench."""

    device: Annotated[str, value("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute; `auto` uses CUDA if available"""
    threads: Annotated[Threads, value("INT", "(default: half the cores)")] = 0
    """CPU threads; more threads than free cores are slower"""
    steps: Steps = "auto"
    """on CUDA: `captured` replays steps as graphs, `compiled` compiles them first (a minute), `auto` if it pays off"""
    cache: Annotated[str, value("auto|none|DIR")] = "auto"
    """decoded images on disk instead of in memory; `auto`: above 3 GiB, in the user's cache folder"""


@dataclass(frozen=True)
class Options(Machine):
    """Where and how a run is executed. None of it changes the trained weights."""

    out: Annotated[str, value("DIR", "(default: runs/<data>-<labeled>-<test>-<method>-<seed>)")] = ""
    """folder for the run's files"""
    eval_every: Count = 1
    """epochs between evaluations; the last five are always evaluated"""
    resume: Switch = False
    """continue the run in the output folder"""
    overwrite: Switch = False
    """replace the run in the output folder"""
    folds: WholeNumber = 0
    """calibrate by cross-validation with this many more networks, each trained without a part of the labels; 0: off"""
    keep_checkpoints: Switch = False
    """keep the checkpoints of a finished run, which can rebuild a damaged model; they are several times its size"""
    verify_cache: Switch = False
    """compare all cached images with their files, not only a sample; --resume always does"""
    quiet: Switch = False
    """show no progress; otherwise a bar on a terminal, and one line per epoch elsewhere"""
    tensorboard: Switch = False
    """write scalars and mixed images for TensorBoard to OUT/tensorboard"""


def choose_model(model: str, native_side: int) -> str:
    """`auto` depends on the images' shorter side."""
    if model != "auto":
        return model
    return "digits" if native_side <= SMALL_SIDE else DEFAULT_BACKBONE


# ---- checking

KINDS: dict[type, tuple[type, ...]] = {int: (Integral,), float: (Real,), bool: (bool,), str: (str,)}


def check(*settings: Any) -> None:
    """Refuse values of the wrong type, outside their limits or not among the choices, before any image is read."""
    for each in settings:
        for name, hint in get_type_hints(type(each), include_extras=True).items():
            check_value(name, getattr(each, name), hint)


def check_value(name: str, given: Any, hint: Any) -> None:
    kind, limits = unwrap(hint)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if given not in choices:
            raise UserError(f"{flag(name)} must be {', '.join(choices[:-1])} or {choices[-1]}, got {given!r}.")
        return
    if kind not in KINDS:
        return
    if not isinstance(given, KINDS[kind]) or (isinstance(given, bool) and kind is not bool):
        raise UserError(f"{flag(name)} must be of type {kind.__name__}, got {given!r}.")
    if kind in (int, float):
        try:
            number = float(given)  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        for limit in limits or [Limit("a finite number")]:
            if not (math.isfinite(number) and limit.holds(number)):
                raise UserError(f"{flag(name)} must be {limit.text}, got {given}.")


def unwrap(hint: Any) -> tuple[Any, list[Limit]]:
    """The plain type of a field, and its limits."""
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        inner, limits = unwrap(kind)
        return inner, limits + [mark for mark in marks if isinstance(mark, Limit)]
    return hint, []


def check_run(run: RunConfig, method: MethodConfig, options: Options | None = None) -> None:
    """All settings of a run, and what must hold between them."""
    check(run, method, *([options] if options is not None else []))
    if not run.labeled:
        raise UserError("Name the labeled domain: --labeled DOMAIN.")
    if run.labeled == run.test:
        raise UserError(f"--labeled and --test are both {run.labeled!r}: the test domain must be an unseen one.")
    if run.sites != "auto" and not (run.sites.isascii() and run.sites.isdigit() and 1 <= int(run.sites) <= MOST_SITES):
        raise UserError(f"--sites must be `auto` or a number from 1 to {MOST_SITES}, got {run.sites!r}.")
    if run.sites != "auto" and not run.unlabeled_pool:
        raise UserError("--sites is the number of sites in a pool: name it with --unlabeled-pool FOLDER.")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


RARE = ("labels", "add", "unlabeled_pool", "sites", "start_from", "follow_links", "max_pixels", "preset")
"""settings that are stored only if they are used"""


# ---- flat form: as stored beside every result, and as given in Python


def flat(run: RunConfig, method: MethodConfig) -> dict[str, Any]:
    """Both configs as one JSON-able dict."""
    lists = {"unlabeled": list(run.unlabeled), "add": list(run.add)}
    values = _plain(asdict(run) | lists | {"method_config": asdict(method)})
    usual = RunConfig()
    return {
        name: item for name, item in values.items() if name not in RARE or getattr(run, name) != getattr(usual, name)
    }


def method_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The method's settings in a stored config."""
    found = stored.get("method_config", {})
    return found if isinstance(found, dict) else {}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NumPy's numbers become Python's."""
    return {key: _plain(item) if isinstance(item, dict) else _number(item) for key, item in values.items()}


def _number(item: Any) -> Any:
    if isinstance(item, bool | int | float) or not isinstance(item, Real):
        return item
    return int(item) if isinstance(item, Integral) else float(item)


def config_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`name: old → new` for every setting that differs, method settings included."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += config_difference(a, b)
        elif a != b:
            lines.append(f"{key}: {a} → {b}")
    return lines
