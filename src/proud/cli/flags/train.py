"""Flags of `proud train`. Their defaults depend on the data and the method."""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path
from typing import NamedTuple

import tyro

from proud.cli.flags.shared import CONFIG, parse
from proud.config import Options, RunConfig, choose_model
from proud.data.benchmarks import find_benchmark, open_catalog
from proud.data.catalog import Catalog
from proud.data.roles import find_domain
from proud.data.shapes import native_side
from proud.data.source import without_gc
from proud.errors import UserError
from proud.methods import METHODS, check_name, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import preset

HELP = {"-h", "--help"}


class TrainArguments(NamedTuple):
    run: RunConfig
    settings: MethodConfig
    options: Options
    catalog: Catalog | None
    """the images, if the defaults of the settings depended on them"""


def parse_train(argv: list[str]) -> TrainArguments:
    """The task and the method first: the defaults of all other settings depend on them."""
    wants_help = bool(HELP & set(argv))
    given = [word for word in argv if word not in HELP]
    run, rest = tyro.cli(
        RunConfig, args=given, prog="proud train", config=CONFIG, return_unknown_args=True, add_help=False
    )
    defaults, catalog = default_settings(run, wants_help)
    parts = {
        "data_and_network": RunConfig,
        f"{run.method.replace('-', '_')}_method": type(defaults),
        "output_and_device": Options,
    }
    kind = make_dataclass("Train", parts.items(), frozen=True)
    description = (
        "Train a model on one labeled domain and all the others without their labels.\n\n"
        f"The settings of method {run.method!r} are shown with their defaults for this data; use --method NAME --data "
        f"DATA --help for others. Methods: {', '.join(METHODS)}."
    )
    rest += ["--help"] if wants_help else []
    found = parse(kind, rest, "train", description, kind(run, defaults, Options()))
    _, settings, options = (getattr(found, part) for part in parts)
    check_name(run.method, vars(settings))
    if not run.labeled:
        raise UserError(f"Name the labeled domain: --labeled DOMAIN.{_domains_of(run)}")
    return TrainArguments(run, settings, options, catalog)


def default_settings(run: RunConfig, lenient: bool = False) -> tuple[MethodConfig, Catalog | None]:
    """The benchmark's preset or, for one's own data, that of the network that suits the images."""
    method_config(run.method)  # an unknown method is reported first
    benchmark = find_benchmark(run.data)
    if run.data == "embedded" or (benchmark and (run.root or not Path(run.data).is_dir())):
        name = benchmark.name if benchmark else run.data
        return method_config(run.method, **preset(name, method=run.method)), None
    model, catalog = run.model, None
    if model == "auto" and run.labeled:
        try:
            with without_gc():
                catalog = open_catalog(run.data, run.root)
            model = choose_model(model, native_side(catalog, find_domain(catalog, run.labeled)))
        except UserError:
            if not lenient:
                raise
    return method_config(run.method, **preset("", model, run.method)), catalog


def _domains_of(run: RunConfig) -> str:
    try:
        domains = open_catalog(run.data, run.root).domains.values()
    except UserError as error:
        return f" Also: {error}"
    return f" The domains of {run.data} are: {', '.join(domain.name for domain in domains if domain.entries)}."
