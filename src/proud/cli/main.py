"""The command `proud`: parses, calls, prints."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

import proud
from proud.config import Options, RunConfig, Switch, choose_model, word
from proud.cli.exit import ending_well, say
from proud.errors import UserError

# name -> (where its function is, what it is for)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("proud.cli.main:demo_command", "train source-only and ProUD on the built-in digits and compare them"),
    "train": ("proud.cli.main:train_command", "train on your folders, a CSV or a benchmark"),
    "evaluate": ("proud.cli.main:evaluate_command", "measure a trained model on a labeled domain"),
    "predict": ("proud.cli.main:predict_command", "classify images with a trained model"),
    "label-next": ("proud.cli.label_next:label_next_command", "which images of each site to label by hand next"),
    "bench": ("proud.cli.main:bench_command", "run a whole table: combinations of domains × seeds × methods"),
    "report": ("proud.cli.report:report_command", "write one HTML page about runs and benches"),
    "speed": ("proud.cli.main:speed_command", "measure how fast training is on this machine"),
    "data": ("proud.cli.main:data_command", "look at a data set before training: proud data check pacs --root DIR"),
}


def main() -> None:
    """Entry point: one clear line for what the user can mend, a traceback for what only we can."""
    warnings.showwarning = show_warning
    sys.exit(ending_well(lambda: run(sys.argv[1:])))


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Warnings of our own are for the user; those of libraries are not."""
    if category is UserWarning and Path(filename).is_relative_to(Path(__file__).parent):
        say(f"warning: {message}", 0)


def run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print_help()
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"proud {proud.__version__}")
        return 0
    if argv[0] not in COMMANDS:
        from difflib import get_close_matches

        close = get_close_matches(argv[0], COMMANDS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(COMMANDS)}."
        raise UserError(f"There is no command {argv[0]!r}. {hint}")
    module, _, name = COMMANDS[argv[0]][0].partition(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), name)
    return command(argv[1:])


def print_help() -> None:
    print("usage: proud COMMAND [options]\n")
    print(
        "Semi-supervised domain generalization: labels from one domain, images from several, a model for unseen ones.\n"
    )
    width = max(map(len, COMMANDS))
    for name, (_, purpose) in COMMANDS.items():
        print(f"  {name:<{width}}  {purpose}")
    print("\nEach command explains itself: proud train --help. On your own folders ROOT/<domain>/<class>/*:\n")
    print("  proud train --data ROOT --labeled central --test none --out runs/x")
    print("  proud predict runs/x NEW_IMAGES --out predictions.csv")


def parse(kind: Any, argv: list[str], command: str, description: str, default: Any = None) -> Any:
    """Flags from a dataclass, all on one level."""
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff)
    extra = {} if default is None else {"default": default}
    return tyro.cli(kind, args=argv, prog=f"proud {command}", description=description, config=config, **extra)


def peek(argv: list[str], flag: str, default: str) -> str:
    """The value of a flag before the whole line is parsed: other defaults depend on it. The last one counts."""
    found = default
    for place, given in enumerate(argv):
        if given == f"--{flag}" and place + 1 < len(argv):
            found = argv[place + 1]
        if given.startswith(f"--{flag}="):
            found = given.partition("=")[2]
    return found


def train_arguments(argv: list[str]) -> tuple[RunConfig, Any, Options]:
    from proud.methods import METHODS, check_name, method_config

    method, data = peek(argv, "method", "proud"), peek(argv, "data", "embedded")
    settings = method_config(method, **preset_for(argv, data, method))
    parts = {
        "data_and_network": RunConfig,
        f"{method.replace('-', '_')}_method": type(settings),
        "output_and_device": Options,
    }
    kind = make_dataclass("Train", parts.items(), frozen=True)
    description = (
        "Train a model on one labeled domain and all the others without their labels.\n\n"
        f"The settings of method {method!r} are shown with their defaults for this data; --method NAME --data DATA "
        f"--help shows others. Methods: {', '.join(METHODS)}."
    )
    default = kind(RunConfig(method=method, data=data), settings, Options())
    found = parse(kind, argv, "train", description, default)
    run_config, settings, options = (getattr(found, part) for part in parts)
    check_name(method, vars(settings))
    if not run_config.labeled:
        raise UserError(f"Say which domain has labels: --labeled DOMAIN.{_domains_of(run_config)}")
    return run_config, settings, options


def preset_for(argv: list[str], data: str, method: str) -> dict[str, Any]:
    """The benchmark's settings or, for one's own data, those of the network that suits the images."""
    from proud.data.layouts import find_benchmark
    from proud.methods.presets import preset

    root, labeled, model = (peek(argv, *flag) for flag in (("root", ""), ("labeled", ""), ("model", "auto")))
    benchmark = find_benchmark(data)
    if data == "embedded" or (benchmark and (root or not Path(data).is_dir())):
        return preset(benchmark.name if benchmark else data, method=method)
    if model == "auto" and labeled:
        from proud.data.benchmarks import catalog_for
        from proud.data.native import native_side

        try:
            model = choose_model(model, native_side(catalog_for(data, root or None), labeled))
        except UserError:
            if not {"-h", "--help"} & set(argv):
                raise
    return preset("", model, method)


def _domains_of(run_config: RunConfig) -> str:
    from proud.data.benchmarks import catalog_for

    try:
        domains = catalog_for(run_config.data, run_config.root or None).domains.values()
    except UserError as error:
        return f" And: {error}"
    return f" The domains of {run_config.data} are: {', '.join(domain.name for domain in domains if domain.entries)}."


def train_command(argv: list[str]) -> int:
    run_config, settings, options = train_arguments(argv)
    from proud.cli.main import show as console
    from proud.distributed.ranks import join

    with join(options.device) as group:
        return console.train(run_config, settings, options, group)


@dataclass(frozen=True)
class EvaluateArguments:
    run: Annotated[Positional[Path], word("RUN")]
    """folder of a finished run"""
    domain: Annotated[str, word("DOMAIN")]
    """the domain to measure on; its images need labels"""
    data: Annotated[str, word("DATA", "(default: the run's own data)")] = ""
    """folder, CSV file, benchmark or `embedded`"""
    root: Annotated[str, word("DIR", "(for benchmarks only)")] = ""
    """where a named benchmark is unpacked"""
    device: Annotated[str, word("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute"""
    skip_bad: Switch = False
    """leave unreadable images out instead of stopping"""
    coverage: float = 0.9
    """how often prediction sets shall hold the true class; how often they do is measured"""
    risk: float = 0.05
    """the share of wrong answers that abstention shall allow; what it allows is measured"""
    sets: Literal["lac", "aps"] = "lac"
    """kind of prediction sets: the smallest (lac), or ones that adapt to each image (aps)"""
    out: Annotated[str, word("FILE", "(optional)")] = ""
    """JSON file for all numbers, with model, data, versions, device and command"""
    overwrite: Switch = False
    """replace that file if it is there"""


def evaluate_command(argv: list[str]) -> int:
    arguments = parse(EvaluateArguments, argv, "evaluate", "Measure a trained model on one labeled domain.")
    from proud.cli.main import show as console

    return console.evaluate(arguments)


@dataclass(frozen=True)
class PredictArguments:
    run: Annotated[Positional[Path], word("RUN")]
    """folder of a finished run"""
    images: Annotated[Positional[tuple[Path, ...]], word("IMAGES ...", "(required)")] = ()
    """image files, or folders that are searched to any depth"""
    out: Annotated[Path, word("FILE")] = Path("predictions.csv")
    """CSV file to write: path, label, confidence and, as far as the model has them, set, abstain, uncertainty"""
    probabilities: Switch = False
    """also write the probability of every class, in columns p(CLASS)"""
    overwrite: Switch = False
    """replace that file, and the table of images left out beside it, if they are there"""
    device: Annotated[str, word("auto|cpu|cuda|cuda:N")] = "auto"
    """where to compute"""
    skip_bad: Switch = False
    """leave unreadable images out instead of stopping; FILE-left-out.csv names them (path, reason)"""
    coverage: float = 0.9
    """how often prediction sets hold the true class, on new images of the labeled domain"""
    risk: float = 0.05
    """abstain so that at most this share of the answers is wrong, on new images of the labeled domain"""
    sets: Literal["lac", "aps"] = "lac"
    """kind of prediction sets: the smallest (lac), or ones that adapt to each image (aps)"""


def predict_command(argv: list[str]) -> int:
    arguments = parse(PredictArguments, argv, "predict", "Classify images with a trained model.")
    from proud.cli.main import show as console

    return console.predict(arguments)


@dataclass(frozen=True)
class DemoArguments:
    out: Annotated[Path, word("DIR")] = Path("runs/demo")
    """folder for both runs; a demo's earlier files there are replaced"""
    seed: int = 2022
    """decides every random choice"""


def demo_command(argv: list[str]) -> int:
    arguments = parse(
        DemoArguments, argv, "demo", "Source-only against ProUD on the built-in digits: pen labeled, street unseen."
    )
    from proud.cli.main import show as console

    return console.demo(arguments.out, arguments.seed)


@dataclass(frozen=True)
class DataArguments:
    action: Annotated[Positional[str], word("check")]
    """what to do: only `check` so far"""
    name: Annotated[Positional[str], word("BENCHMARK")]
    """digits-dg, pacs or office-home"""
    root: Annotated[str, word("DIR", "(required)")] = ""
    """where it is unpacked"""


def data_command(argv: list[str]) -> int:
    arguments = parse(DataArguments, argv, "data", "Count a data set's images against the canonical numbers.")
    if arguments.action != "check":
        raise UserError(f"proud data knows only `check`, not {arguments.action!r}.")
    if not arguments.root:
        from proud.data.layouts import BENCHMARKS, find_benchmark

        if find_benchmark(arguments.name) is None:
            raise UserError(f"`proud data check` is for {', '.join(BENCHMARKS)}; one's own folders need no check.")
        raise UserError(f"Where is {arguments.name} unpacked? Name its folder: --root DIR.")
    from proud.cli.main import show as console

    return console.check_data(arguments.name, arguments.root)


def speed_command(argv: list[str]) -> int:
    from proud.speed_cli import DESCRIPTION, SpeedArguments, speed

    return speed(parse(SpeedArguments, argv, "speed", DESCRIPTION))


def bench_command(argv: list[str]) -> int:
    from proud.cli.bench import DESCRIPTION, BenchArguments, bench

    return bench(parse(BenchArguments, argv, "bench", DESCRIPTION))
