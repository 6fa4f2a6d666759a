"""The flags of every command, as dataclasses. Imports no torch, so that help is instant."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from tyro.conf import Positional, UseAppendAction

from proud.config import (
    Count,
    Machine,
    NetSpec,
    NotNegative,
    Options,
    ReadSpec,
    RunConfig,
    Switch,
    WholeNumber,
    choose_model,
    value,
)
from proud.data.benchmarks import find_benchmark, open_catalog
from proud.data.catalog import Catalog
from proud.data.roles import find_domain
from proud.data.shapes import native_side
from proud.data.source import without_gc
from proud.errors import UserError
from proud.methods import METHODS, check_name, method_config
from proud.methods.base import MethodConfig
from proud.methods.presets import preset

CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
HELP = {"-h", "--help"}
Device = Annotated[str, value("auto|cpu|cuda|cuda:N")]
RunFolder = Annotated[Positional[Path], value("RUN")]
Data = Annotated[str, value("DATA", "(default: the run's own data)")]
Root = Annotated[str, value("DIR", "(for benchmarks only)")]


def parse(kind: Any, argv: list[str], command: str, description: str, default: Any = None) -> Any:
    """Flags from a dataclass, all on one level."""
    extra = {} if default is None else {"default": default}
    return tyro.cli(kind, args=argv, prog=f"proud {command}", description=description, config=CONFIG, **extra)


# ---- train


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


# ---- the others


@dataclass(frozen=True, kw_only=True)
class WithModel:
    """Flags of all commands that use a saved model."""

    device: Device = "auto"
    """where to compute"""
    skip_bad: Switch = False
    """skip unreadable images instead of stopping"""


@dataclass(frozen=True, kw_only=True)
class WithData:
    """Flags of commands that use the run's own data, or other data."""

    data: Data = ""
    """folder, CSV file, benchmark or `embedded`"""
    root: Root = ""
    """folder of a named benchmark"""


@dataclass(frozen=True, kw_only=True)
class WithAnswers:
    """Flags of prediction sets and abstention: both are guaranteed on new images of the labeled domain only."""

    coverage: float = 0.9
    """share of prediction sets that contain the true class, on new images of the labeled domain"""
    risk: float = 0.05
    """abstain so that at most this share of the answers is wrong, on new images of the labeled domain"""
    sets: Literal["lac", "aps"] = "lac"
    """kind of prediction sets: the smallest (lac), or adaptive to each image (aps)"""


@dataclass(frozen=True)
class EvaluateArguments(WithAnswers, WithModel, WithData):
    """Measure a trained model on one labeled domain. Coverage and risk are measured, too."""

    run: RunFolder
    """folder of a finished run"""
    domain: Annotated[str, value("DOMAIN")]
    """the domain to measure on; its images need labels"""
    out: Annotated[str, value("FILE", "(optional)")] = ""
    """JSON file for all numbers, with model, data, versions, device and command"""
    overwrite: Switch = False
    """replace that file"""


@dataclass(frozen=True)
class PredictArguments(WithAnswers, WithModel):
    """Classify images with a trained model. With --skip-bad, FILE-left-out.csv lists the skipped images."""

    run: RunFolder
    """folder of a finished run"""
    images: Annotated[Positional[tuple[Path, ...]], value("IMAGES ...", "(required)")] = ()
    """image files, or folders that are searched to any depth"""
    out: Annotated[Path, value("FILE")] = Path("predictions.csv")
    """CSV file to write: path, label, confidence and, if the model has them, set, abstain, uncertainty"""
    probabilities: Switch = False
    """also write the probability of every class, in columns p(CLASS)"""
    overwrite: Switch = False
    """replace that file, and the table of skipped images beside it"""


@dataclass(frozen=True)
class LabelNextArguments(WithModel, WithData):
    """Choose the images of each unlabeled site whose labels would help most. Fill in the column `label`, then train
    with: proud train … --labels FILE."""

    run: RunFolder
    """folder of a finished run"""
    k: int = 20
    """images per site"""
    out: Annotated[Path, value("FILE")] = Path("extra.csv")
    """CSV file to write: path, domain, label (empty), guess, uncertainty, content"""
    overwrite: Switch = False
    """replace that file"""


@dataclass(frozen=True)
class BenchArguments:
    """Run a whole table: every combination of labeled and test domain × seeds × methods. The same command continues an
    interrupted bench; several may work on one --out at a time."""

    name: Annotated[Positional[str], value("NAME")]
    """digits-dg, pacs, office-home, embedded, or your own folder or CSV file"""
    root: Annotated[str, value("DIR", "(default: none)")] = ""
    """folder of a named benchmark"""
    methods: Annotated[str, value("NAME,NAME")] = "proud,proud-plus,erm,erm-noisemix"
    """methods to run, all of them before the next combination"""
    seeds: Annotated[str, value("INT,INT")] = "2022,2023,2024"
    """seeds; all combinations of the first seed are run first"""
    combos: Annotated[str, value("all|LABELED:TEST,…")] = "all"
    """which combinations; the remaining domains are unlabeled"""
    minutes: NotNegative = 0.0
    """stop after this time; a run in progress keeps its checkpoint. 0: no limit"""
    out: Annotated[str, value("DIR", "(default: runs/bench-NAME)")] = ""
    """folder for runs, results.jsonl and tables"""
    epochs: Annotated[int, value("INT", "(default: the preset's)")] = 0
    """epochs of the main phase"""
    pretrain_epochs: Annotated[int, value("INT", "(default: the preset's)")] = -1
    """epochs on the labeled domain alone"""
    equal_budget: Annotated[WholeNumber, value("INT", "(default: off)")] = 0
    """give every method the budget of ProUD with this many main epochs, in images passed forward and backward"""
    set: Annotated[UseAppendAction[tuple[str, ...]], value("KEY=VALUE")] = ()
    """any other setting of the methods, as in --set alpha=1.0"""
    reading: ReadSpec = field(default_factory=ReadSpec)
    network: NetSpec = field(default_factory=NetSpec)
    machine: Machine = field(default_factory=Machine)
    eval_every: Count = 5
    """epochs between evaluations; the last five are always evaluated"""
    note: Annotated[str, value("TEXT", "(default: none)")] = ""
    """printed in every table, as in --note "rebuilt, SYN stand-in" """
    parallel: Count = 1
    """runs at the same time on one device, each in its own process; useful for small networks on a large GPU"""
    engine: Literal["here", "ray"] = "here"
    """where runs are executed: on this machine, or on a Ray cluster (pip install 'proud[ray]')"""
    ray_cpus: float = 1.0
    """with --engine ray: CPUs per run"""
    ray_gpus: float = 0.0
    """with --engine ray: GPUs, or a share of one, per run"""
    ray_retries: int = 3
    """with --engine ray: how often a run is restarted when its process or machine dies"""
    table_only: Switch = False
    """run nothing, only make the tables from existing results"""
    results: Annotated[tuple[Path, ...], value("FILE ...", "(default: OUT/results.jsonl)")] = ()
    """with --table-only: results files to read; tables are written to --out or, for a single file, beside it"""
    quiet: Switch = False
    """no live table"""


@dataclass(frozen=True)
class ReportArguments:
    """Write one HTML page about runs and benches: data, results beside the published rows, training curves, t-SNE of
    features and prototypes, training pairs, confusion, reliability. The page is self-contained; every figure is also
    written as PNG and PDF, every table as LaTeX and CSV."""

    sources: Annotated[Positional[tuple[Path, ...]], value("RUN|BENCH ...", "(required)")] = ()
    """run folders, folders of run folders, bench folders, results.jsonl files"""
    out: Annotated[Path, value("FILE")] = Path("report.html")
    """page to write; figures and tables are written to a folder beside it (report_files for report.html)"""
    overwrite: Switch = False
    """replace an earlier report"""


@dataclass(frozen=True)
class DemoArguments:
    """Compare source-only training with ProUD on the built-in digits: pen labeled, street unseen."""

    out: Annotated[Path, value("DIR")] = Path("runs/demo")
    """folder for both runs; an earlier demo there is replaced"""
    seed: WholeNumber = 2022
    """seed of all random numbers"""


@dataclass(frozen=True)
class DataArguments:
    """Compare the numbers of a benchmark's images with the published ones."""

    action: Annotated[Positional[Literal["check"]], value("check")]
    """count the images"""
    name: Annotated[Positional[str], value("BENCHMARK")]
    """digits-dg, pacs or office-home"""
    root: Annotated[str, value("DIR", "(required)")] = ""
    """folder of the benchmark"""
