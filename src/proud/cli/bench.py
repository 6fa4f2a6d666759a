"""`proud bench`: its flags, and what it does with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from proud.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from proud.bench.plan import Plan
    from proud.bench.queue import Outcome, View
    from proud.config import Options, RunConfig
    from proud.data.catalog import Catalog

DESCRIPTION = (
    "Run a whole table: every combination of labeled and test domain × seeds × methods. An interrupted bench goes on "
    "with the same command; several may work on one --out at a time."
)
Switch = FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class BenchArguments:
    name: Positional[str]
    """digits-dg, pacs, office-home, embedded, or a folder or CSV of your own"""
    root: Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: none)")] = ""
    """where a named benchmark is unpacked"""
    methods: Annotated[str, arg(metavar="NAME,NAME")] = "proud,proud-plus,erm,erm-noisemix"
    """methods, the innermost order of the queue"""
    seeds: Annotated[str, arg(metavar="INT,INT")] = "2022,2023,2024"
    """seeds, the outermost order: all combinations of the first come first"""
    combos: Annotated[str, arg(metavar="all|LABELED:TEST,…")] = "all"
    """which combinations; the domains that are neither are unlabeled"""
    minutes: float = 0.0
    """stop after this time, a running job at its last checkpoint; 0: when all is done"""
    out: Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: runs/bench-NAME)")] = ""
    """folder for runs, results.jsonl and tables"""
    epochs: Annotated[int, arg(help_behavior_hint="(default: the preset's)")] = 0
    """epochs of the main phase"""
    pretrain_epochs: Annotated[int, arg(help_behavior_hint="(default: the preset's)")] = -1
    """epochs over the labeled domain alone"""
    equal_budget: Annotated[int, arg(help_behavior_hint="(default: off)")] = 0
    """give every method as many images, forward and backward, as ProUD's pretraining and so many main epochs take"""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY=VALUE")] = ()
    """any other setting of the methods, as in --set alpha=1.0"""
    model: str = "auto"
    """`digits`, any timm name, or `auto`: by the size of the images"""
    weights: Annotated[str, arg(metavar="auto|none|FILE")] = "auto"
    """initial weights: `auto` downloads the backbone's, `none` is random, or a safetensors FILE"""
    size: Annotated[int, arg(help_behavior_hint="(default: the network's own)")] = 0
    """image side in pixels"""
    square: Literal["middle", "pad", "stretch"] = "middle"
    """how pictures become squares: their `middle` alone, or all of them, `pad` with grey bars or `stretch`"""
    val: float = 0.1
    """share of the labeled domain kept for validation, where the data set ships no split"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """`auto`: bf16 on CUDA, fp32 elsewhere"""
    skip_bad: Switch = False
    """leave unreadable images out instead of stopping"""
    device: Annotated[str, arg(metavar="auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute"""
    threads: Annotated[int, arg(help_behavior_hint="(default: half the cores)")] = 0
    """CPU threads"""
    eval_every: int = 5
    """epochs between evaluations; the last five are always evaluated"""
    fast: bool = True
    """compiled steps in CUDA graphs, on CUDA"""
    note: Annotated[str, arg(metavar="TEXT", help_behavior_hint="(default: none)")] = ""
    """said in every table, as in --note "rebuilt, SYN stand-in" """
    parallel: int = 1
    """runs at a time on one device, each in a process; pays for small networks on a large GPU"""
    engine: Literal["here", "ray"] = "here"
    """where runs take place: one after another here, or on a Ray cluster (pip install 'proud[ray]')"""
    ray_cpus: float = 1.0
    """with --engine ray: CPUs that one run takes"""
    ray_gpus: float = 0.0
    """with --engine ray: GPUs, or a share of one, that one run takes"""
    ray_retries: int = 3
    """with --engine ray: how often a run is started again when its process or machine dies"""
    table_only: Switch = False
    """run nothing: make the tables from results alone"""
    results: Annotated[
        tuple[Path, ...], arg(metavar="FILE ...", help_behavior_hint="(default: OUT/results.jsonl)")
    ] = ()
    """with --table-only: results files to read; tables go to --out or, of one file, beside it"""
    quiet: Switch = False
    """no live table"""


def bench(arguments: BenchArguments) -> int:
    from rich.console import Console

    from proud.distributed.ranks import refuse_torchrun

    console = Console()
    if arguments.table_only:
        return show_tables(arguments, console)
    if arguments.results:
        raise UserError("--results goes with --table-only.")
    refuse_torchrun("bench")
    return run_bench(arguments, console)


def run_bench(arguments: BenchArguments, console: Console) -> int:
    started = time.monotonic()
    from proud.cli.bench_view import BenchView
    from proud.bench.processes import work_side_by_side
    from proud.bench.results import Results
    from proud.bench.queue import Tasks, check_folder, work
    from proud.config import Options, at_least

    at_least(0, minutes=arguments.minutes, equal_budget=arguments.equal_budget)
    at_least(1, parallel=arguments.parallel, eval_every=arguments.eval_every)
    catalog, plan = prepare(arguments)
    for name, text in catalog.notices.items():
        if name not in catalog.domains or not catalog.domains[name].entries:  # others are told of when they are read
            console.print(text, markup=False)
    if (hidden := without_labels(catalog)) and not arguments.quiet:
        console.print(f"Unlabeled in every combination, for there are no labels: {', '.join(hidden)}", markup=False)
    folder = out_folder(arguments)
    check_folder(plan, folder)
    options = Options(
        device=arguments.device, threads=arguments.threads, eval_every=arguments.eval_every, fast=arguments.fast
    )
    results = Results(folder / "results.jsonl")

    def deadline() -> bool:
        return 0 < arguments.minutes * 60 <= time.monotonic() - started

    with BenchView(plan, results.rows, console, arguments.quiet) as view:
        if arguments.engine == "ray":
            outcome = on_ray(arguments, plan, folder, options, view, deadline)
        else:
            if arguments.parallel > 1:
                outcome = work_side_by_side(arguments.parallel, plan, folder, catalog, options, view, deadline)
            else:
                tasks = Tasks(catalog, progress=not (arguments.quiet or view.shows_table))
                outcome = work(plan, folder, tasks, options, view, deadline)
    if results.path.exists():
        show_tables(arguments, console)
    return conclude(outcome, plan, results.done(), console)


def on_ray(
    arguments: BenchArguments, plan: Plan, folder: Path, options: Options, view: View, deadline: Callable[[], bool]
) -> Outcome:
    from proud.bench.ray_cluster import Place, Resources, work_on_ray

    named = arguments.root or not Path(arguments.name).exists()
    place = Place(
        here=str(Path.cwd()),
        folder=str(folder.resolve()),
        data=plan.bench if named else str(Path(arguments.name).resolve()),
        root=str(Path(arguments.root).resolve()) if arguments.root else "",
    )
    resources = Resources(arguments.ray_cpus, arguments.ray_gpus, arguments.ray_retries)
    threads = options.threads or max(1, int(resources.cpus))  # half the machine is not one run's
    return work_on_ray(plan, place, replace(options, threads=threads), resources, view, deadline)


def conclude(outcome: Outcome, plan: Plan, done: set, console: Console) -> int:
    from rich.markup import escape

    for key, message in outcome.failures.items():
        console.print(f"[red]failed[/red] {escape(' '.join(map(str, key)))}: {escape(message)}", soft_wrap=True)
    left = sum(job.key not in done for job in plan.jobs)
    if outcome.stopped:
        why = "The time is over" if outcome.stopped == "time" else "Stopped"
        console.print(f"{why}: {left} of {len(plan.jobs)} runs are left. The same command goes on.")
        return 0 if outcome.stopped == "time" else 130
    return 1 if outcome.failures else 0


def bench_name(name: str) -> str:
    """The benchmark's own spelling, or the last part of a path."""
    from proud.data.layouts import find_benchmark

    known = find_benchmark(name)
    return known.name if known and not Path(name).is_dir() else Path(name).resolve().stem


def out_folder(arguments: BenchArguments) -> Path:
    return Path(arguments.out or f"runs/bench-{bench_name(arguments.name)}")


def prepare(arguments: BenchArguments) -> tuple[Catalog, Plan]:
    """Find the images and decide what is to be run; the network is the same in all runs."""
    from statistics import median

    from proud.bench.plan import fingerprint, make_plan, parse_methods, parse_pairs, parse_seeds
    from proud.config import RunConfig, choose_model
    from proud.data.benchmarks import catalog_for
    from proud.data.native import native_side

    methods, seeds, pairs = parse_methods(arguments.methods), parse_seeds(arguments.seeds), parse_pairs(arguments.set)
    for key, given in (("epochs", arguments.epochs), ("pretrain_epochs", arguments.pretrain_epochs + 1)):
        if given and key in pairs:
            raise UserError(f"--{key.replace('_', '-')} and --set {key}=… are both given: leave one out.")
    if arguments.epochs:
        pairs["epochs"] = str(arguments.epochs)
    if arguments.pretrain_epochs >= 0:
        pairs["pretrain_epochs"] = str(arguments.pretrain_epochs)
    catalog = catalog_for(arguments.name, arguments.root or None)
    domains = [name for name, domain in catalog.domains.items() if domain.entries]
    side = int(median(native_side(catalog, name) for name in domains)) if domains else 0
    name = bench_name(arguments.name)
    run = RunConfig(
        data=name if arguments.root else arguments.name,
        root=arguments.root,
        model=choose_model(arguments.model, side),
        weights=arguments.weights,
        size=arguments.size,
        square=arguments.square,
        val=arguments.val,
        precision=arguments.precision,
        skip_bad=arguments.skip_bad,
    )
    plan = make_plan(
        run,
        name,
        domains,
        methods=methods,
        seeds=seeds,
        combos=arguments.combos,
        without_labels=without_labels(catalog),
        overrides=pairs,
        epochs=budget_epochs(arguments.equal_budget, catalog, run, methods, pairs) if arguments.equal_budget else None,
        note=arguments.note,
        data=name if catalog.benchmark or name == "embedded" else f"{name} {fingerprint(catalog)}",
    )
    return catalog, plan


def without_labels(catalog: Catalog) -> list[str]:
    """Domains that can neither be learned from nor measured on."""
    return [name for name, domain in catalog.domains.items() if any(entry.label is None for entry in domain.entries)]


def budget_epochs(
    proud_epochs: int, catalog: Catalog, run: RunConfig, methods: list[str], pairs: dict[str, str]
) -> dict[str, int]:
    """Epochs per method for an equal budget, on domains of the mean size: the same for all combinations."""
    from proud.bench.budget import equal_epochs
    from proud.bench.plan import parse_settings
    from proud.methods.presets import preset

    if "epochs" in pairs:
        raise UserError("--equal-budget sets the epochs of every method; leave --epochs out.")
    domains = [domain for domain in catalog.domains.values() if domain.entries]
    sizes = [sum(entry.split != "val" for entry in domain.entries) for domain in domains]
    mean = max(16, round(sum(sizes) / len(sizes)))
    shape = {"labeled": mean, "unlabeled": (mean,) * (len(domains) - 2), "classes": 2}
    return equal_epochs(shape, methods, preset(run.data, run.model) | parse_settings(pairs, methods), proud_epochs)


def show_tables(arguments: BenchArguments, console: Console) -> int:
    """Print the tables, and write them as Markdown, CSV and LaTeX to --out, or beside the only results file."""
    from proud.bench.results import read_rows
    from proud.report.tables import write_tables

    paths = arguments.results or (out_folder(arguments) / "results.jsonl",)
    rows = [row for path in paths for row in read_rows(path)]
    name = bench_name(arguments.name)
    if other := sorted({row["bench"] for row in rows} - {name}):
        console.print(f"Left out, for they are not of {name}: results of {', '.join(other)}", markup=False)
    stem = Path(arguments.out) / "results" if arguments.out else paths[0].with_suffix("") if len(paths) == 1 else None
    own = stem and stem.with_suffix(".jsonl")
    if own and own.exists() and own.resolve() not in [path.resolve() for path in paths]:
        raise UserError(f"{own.parent} has results of its own, whose tables would be lost. Choose another --out.")
    text = write_tables(name, rows, stem, note=arguments.note)
    console.print(text, soft_wrap=True, markup=False, highlight=False)
    if stem is None:
        console.print("With --out DIR the tables of several files are written there.")
    return 0
