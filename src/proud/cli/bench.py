"""`proud bench`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.markup import escape

from proud.bench.budget import equal_epochs
from proud.bench.plan import Key, Plan, fingerprint, make_plan, parse_methods, parse_pairs, parse_seeds, parse_settings
from proud.bench.processes import work_side_by_side
from proud.bench.queue import Outcome, View, check_folder, work
from proud.bench.ray_cluster import Resources, SharedPaths, work_on_ray
from proud.bench.results import Results, read_rows
from proud.bench.reuse import Tasks
from proud.cli.bench_view import BenchView
from proud.cli.flags.bench import BenchArguments
from proud.cli.show import console
from proud.config import Options, RunConfig, check, choose_model
from proud.data.benchmarks import find_benchmark, open_catalog
from proud.data.catalog import Catalog
from proud.data.shapes import native_side
from proud.distributed.ranks import refuse_torchrun
from proud.errors import UserError
from proud.files import refuse_stdout
from proud.methods.base import Sizes
from proud.methods.presets import preset
from proud.report.tables import write_tables

SHARE_A_COMPILATION = 4  # runs: all of a method use the same compiled steps


def run(arguments: BenchArguments) -> int:
    check(arguments, arguments.reading, arguments.network, arguments.machine)
    if arguments.table_only:
        return show_tables(arguments)
    if arguments.results:
        raise UserError("--results goes with --table-only.")
    refuse_torchrun("bench")
    return run_bench(arguments)


def run_bench(arguments: BenchArguments) -> int:
    started = time.monotonic()
    refuse_stdout(arguments.out, "a bench")
    catalog, plan = prepare(arguments)
    for name, text in catalog.notices.items():
        if name not in catalog.domains or not catalog.domains[name].entries:  # the others follow when they are read
            console.print(text, markup=False)
    if (hidden := without_labels(catalog)) and not arguments.quiet:
        console.print(f"Unlabeled in every combination, because they have no labels: {', '.join(hidden)}", markup=False)
    folder = out_folder(arguments)
    check_folder(plan, folder)
    options = Options(**vars(arguments.machine), eval_every=arguments.eval_every)
    if options.steps == "auto" and len(plan.jobs) >= SHARE_A_COMPILATION:
        options = replace(options, steps="compiled")
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
                tasks = Tasks(catalog, not (arguments.quiet or view.shows_table), options.cache)
                outcome = work(plan, folder, tasks, options, view, deadline)
    if results.path.exists():
        show_tables(arguments)
    return conclude(outcome, plan, results.done())


def on_ray(
    arguments: BenchArguments, plan: Plan, folder: Path, options: Options, view: View, deadline: Callable[[], bool]
) -> Outcome:
    named = arguments.root or not Path(arguments.name).exists()
    paths = SharedPaths(
        here=str(Path.cwd()),
        folder=str(folder.resolve()),
        data=plan.bench if named else str(Path(arguments.name).resolve()),
        root=str(Path(arguments.root).resolve()) if arguments.root else "",
    )
    resources = Resources(arguments.ray_cpus, arguments.ray_gpus, arguments.ray_retries)
    threads = options.threads or max(1, int(resources.cpus))  # half the machine's cores are not for one run
    return work_on_ray(plan, paths, replace(options, threads=threads), resources, view, deadline)


def conclude(outcome: Outcome, plan: Plan, done: set[Key]) -> int:
    for key, message in outcome.failures.items():
        console.print(f"[red]failed[/red] {escape(' '.join(map(str, key)))}: {escape(message)}", soft_wrap=True)
    left = sum(job.key not in done for job in plan.jobs)
    if outcome.stopped:
        why = "The time is up" if outcome.stopped == "time" else "Stopped"
        console.print(f"{why}: {left} of {len(plan.jobs)} runs are left. The same command continues.")
        return 0 if outcome.stopped == "time" else 130
    return 1 if outcome.failures else 0


def bench_name(name: str) -> str:
    """The benchmark's own spelling, or the last part of a path."""
    known = find_benchmark(name)
    return known.name if known and not Path(name).is_dir() else Path(name).resolve().stem


def out_folder(arguments: BenchArguments) -> Path:
    return Path(arguments.out or f"runs/bench-{bench_name(arguments.name)}")


def prepare(arguments: BenchArguments) -> tuple[Catalog, Plan]:
    """Find the images and decide what is to be run; the network is the same in all runs."""
    methods, seeds, pairs = parse_methods(arguments.methods), parse_seeds(arguments.seeds), parse_pairs(arguments.set)
    for key, given in (("epochs", arguments.epochs), ("pretrain_epochs", arguments.pretrain_epochs + 1)):
        if given and key in pairs:
            raise UserError(f"--{key.replace('_', '-')} and --set {key}=… are both given: leave one out.")
    if arguments.epochs:
        pairs["epochs"] = str(arguments.epochs)
    if arguments.pretrain_epochs >= 0:
        pairs["pretrain_epochs"] = str(arguments.pretrain_epochs)
    catalog = open_catalog(arguments.name, arguments.root, arguments.reading.follow_links)
    domains = [name for name, domain in catalog.domains.items() if domain.entries]
    side = int(median(native_side(catalog, catalog.domains[name]) for name in domains)) if domains else 0
    name = bench_name(arguments.name)
    network = replace(arguments.network, model=choose_model(arguments.network.model, side))
    data = name if arguments.root else arguments.name
    run = RunConfig(**vars(arguments.reading), **vars(network), data=data, root=arguments.root)
    identity = name if catalog.benchmark or arguments.name == "embedded" else f"{name} {fingerprint(catalog)}"
    budget = arguments.equal_budget
    plan = make_plan(
        run,
        name,
        domains,
        methods=methods,
        seeds=seeds,
        combos=arguments.combos,
        without_labels=without_labels(catalog),
        overrides=pairs,
        epochs=budget_epochs(budget, catalog, identity, run, methods, pairs) if budget else None,
        note=arguments.note,
        data=identity,
    )
    return catalog, plan


def without_labels(catalog: Catalog) -> list[str]:
    """Domains that cannot be labeled or test domains."""
    return [name for name, domain in catalog.domains.items() if any(entry.label is None for entry in domain.entries)]


def budget_epochs(
    proud_epochs: int, catalog: Catalog, data: str, run: RunConfig, methods: list[str], pairs: dict[str, str]
) -> dict[str, int]:
    """Epochs per method for an equal budget, on domains of the mean size: the same for all combinations."""
    if "epochs" in pairs:
        raise UserError("--equal-budget sets the epochs of every method; leave --epochs out.")
    domains = [domain for domain in catalog.domains.values() if domain.entries]
    sizes = [sum(entry.split != "val" for entry in domain.entries) for domain in domains]
    mean = max(16, round(sum(sizes) / len(sizes)))
    numbers = Sizes(mean, (mean,) * (len(domains) - 2))
    return equal_epochs(
        numbers, methods, preset(data, run.model, kind=run.preset) | parse_settings(pairs, methods), proud_epochs
    )


def show_tables(arguments: BenchArguments) -> int:
    """Print the tables, and write them as Markdown, CSV and LaTeX to --out, or beside the only results file."""
    paths = arguments.results or (out_folder(arguments) / "results.jsonl",)
    rows = [row for path in paths for row in read_rows(path)]
    name = bench_name(arguments.name)
    if other := sorted({row["bench"] for row in rows} - {name}):
        console.print(f"Ignored, because they are not of {name}: results of {', '.join(other)}", markup=False)
    stem = Path(arguments.out) / "results" if arguments.out else paths[0].with_suffix("") if len(paths) == 1 else None
    own = stem and stem.with_suffix(".jsonl")
    if own and own.exists() and own.resolve() not in [path.resolve() for path in paths]:
        raise UserError(f"{own.parent} has results of its own, whose tables would be lost. Choose another --out.")
    text = write_tables(name, rows, stem, note=arguments.note)
    console.print(text, soft_wrap=True, markup=False, highlight=False)
    if stem is None:
        console.print("With --out DIR the tables of several files are written there.")
    return 0
