"""Flags of `proud train`. Their defaults depend on the data, the method and the device."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tyro

from proud.cli.flags.shared import CONFIG, narrow, parse
from proud.cli.flags.train_help import show_help
from proud.config import Options, RunConfig, choose_model, method_settings
from proud.data.benchmarks import find_benchmark, open_catalog
from proud.data.catalog import Catalog
from proud.data.roles import find_domain
from proud.data.shapes import native_side
from proud.data.source import without_gc
from proud.errors import UserError
from proud.gpu import expects_cpu
from proud.lazy import LazyModule
from proud.methods import check_name, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import CPU_BATCH, CPU_SIZE, chosen_for_cpu, preset, suited_size
from proud.stored import RunRecord
from proud.typed import read_record

if TYPE_CHECKING:
    from proud.model import inherit
else:
    inherit = LazyModule("proud.model.inherit")

HELP = {"-h", "--help"}


class TrainArguments(NamedTuple):
    run: RunConfig
    settings: MethodConfig
    options: Options
    catalog: Catalog | None
    """the images, if the defaults of the settings depended on them"""
    notice: str = ""
    """what was chosen for this device"""


class Defaults(NamedTuple):
    """What the settings are unless they are given."""

    run: RunConfig
    settings: MethodConfig
    catalog: Catalog | None
    model: str
    """the network for the images; `auto` if it is not known yet"""


@dataclass(frozen=True)
class First:
    """What the defaults of all other settings depend on."""

    run: RunConfig = field(default_factory=RunConfig)
    options: Options = field(default_factory=Options)


def parse_train(argv: list[str]) -> TrainArguments:
    """The task, the method and the device first."""
    refuse_twice(argv)
    wants_help = bool(HELP & set(argv))
    given = [word for word in argv if word not in HELP]
    first, rest = parse_first(given)
    defaults = default_settings(first.run, first.options, wants_help)
    if wants_help:
        show_help(defaults.run, defaults.settings, first.options, defaults.model)
    run = defaults.run
    parts = {
        "data_and_network": RunConfig,
        f"{run.method.replace('-', '_')}_method": type(defaults.settings),
        "output_and_device": Options,
    }
    kind = make_dataclass("Train", parts.items(), frozen=True)
    found = parse(kind, rest, "train", "", kind(run, defaults.settings, first.options))
    _, settings, options = (getattr(found, part) for part in parts)
    check_name(run.method, vars(settings))
    if not run.labeled:
        raise UserError(f"Name the labeled domain: --labeled DOMAIN.{_domains_of(run)}")
    return TrainArguments(run, settings, options, defaults.catalog, suited(first.run, defaults, rest))


def refuse_twice(argv: list[str]) -> None:
    """Of flags that take several sites, the parser would drop all but the last."""
    for name in ("--unlabeled", "--add"):
        if sum(word.partition("=")[0] == name for word in argv) > 1:
            raise UserError(f"{name} is given twice: name all sites after one, as in {name} FIRST SECOND.")


def parse_first(argv: list[str]) -> tuple[First, list[str]]:
    """And the words that are left. A run that starts from another has its settings as defaults, and its added sites."""

    def parsed(default: First) -> tuple[First, list[str]]:
        with narrow():
            return tyro.cli(
                First,
                args=argv,
                prog="proud train",
                config=CONFIG,
                default=default,
                return_unknown_args=True,
                add_help=False,
            )

    first, rest = parsed(First())
    if not first.run.start_from:
        return first, rest
    before = inherit.inherited(first.run.start_from)
    for site in {*first.run.add} & {*before.add}:
        warnings.warn(f"--add {site}: the run has this unlabeled site already, so it changes nothing.", stacklevel=2)
    again, rest = parsed(First(before))
    added = tuple(dict.fromkeys((*before.add, *first.run.add)))
    return replace(again, run=replace(again.run, add=added)), rest


def default_settings(run: RunConfig, options: Options, lenient: bool = False) -> Defaults:
    """The benchmark's preset or, for one's own data, that of the network that suits the images and the device."""
    method_config(run.method)  # an unknown method is reported first
    started = bool(run.start_from)
    benchmark = find_benchmark(run.data)
    if run.data == "embedded" or (benchmark and (run.root or not Path(run.data).is_dir())):
        name = benchmark.name if benchmark else run.data
        model = choose_model(run.model, 32) if name in ("embedded", "digits-dg") else choose_model(run.model, 224)
        settings = preset(name, method=run.method, started=started, kind=run.preset)
        return Defaults(run, method_config(run.method, **settings), None, model)
    model, catalog = run.model, None
    if model == "auto" and (run.labeled or lenient):
        try:
            with without_gc():
                catalog = open_catalog(run.data, run.root, run.follow_links)
            name = run.labeled or next(name for name, domain in catalog.domains.items() if domain.entries)
            model = choose_model(model, native_side(catalog, find_domain(catalog, name)))
        except UserError:
            if not lenient:
                raise
    on_cpu = expects_cpu(options.device)
    settings = preset("", model, run.method, on_cpu, started, run.preset)
    run = suited_size(run, model, on_cpu)
    if options.resume and options.out:
        run, settings = as_started(Path(options.out), run, settings)
    return Defaults(run, method_config(run.method, **settings), catalog, model)


def as_started(folder: Path, run: RunConfig, settings: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """A resumed run keeps the size and the batch that were chosen for the device on which it started."""
    with suppress(OSError, ValueError, UserError, KeyError):
        stored = read_record(folder / "run.json", RunRecord)["config"]
        size, batch = RunConfig.from_stored(stored).size, method_settings(stored)["batch_size"]
        return replace(run, size=run.size if run.size not in (0, CPU_SIZE) else size), settings | {"batch_size": batch}
    return run, settings


def suited(given: RunConfig, defaults: Defaults, rest: list[str]) -> str:
    """What was chosen for a CPU. `rest`: the flags of the method that were given."""
    size = defaults.run.size if given.size != defaults.run.size else 0
    own_batch = any(word.startswith("--batch-size") for word in rest)
    batch = defaults.settings.batch_size
    return chosen_for_cpu(size, 0 if own_batch or batch != CPU_BATCH else batch)


def _domains_of(run: RunConfig) -> str:
    try:
        domains = open_catalog(run.data, run.root, run.follow_links).domains.values()
    except UserError as error:
        return f" Also: {error}"
    return f" The domains of {run.data} are: {', '.join(domain.name for domain in domains if domain.entries)}."
